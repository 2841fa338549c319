"""What the service costs, measured; nothing here is installed or tested."""
