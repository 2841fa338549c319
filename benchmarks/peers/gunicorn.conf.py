"""Serves the peers with as many threads as plantstore has."""

worker_class = "gthread"
threads = 8
