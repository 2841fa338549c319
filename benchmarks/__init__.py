"""Measures the performance of the service. Nothing here is installed or tested."""
