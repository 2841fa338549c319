"""How the peers are served: by as many threads as the service itself."""

worker_class = "gthread"
threads = 8
