"""What an operator sees of the service: its health, its metrics, and the format of its log."""
