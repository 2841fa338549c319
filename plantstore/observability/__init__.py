"""What an operator sees of the service: its health, its metrics, and the format of its log."""

#: The variable of prometheus-client with the folder in which several processes share metrics.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
