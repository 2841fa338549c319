"""What takes minutes: continuous integration runs it, by `pytest tests/drills`."""
