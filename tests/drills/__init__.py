"""Tests that take minutes; continuous integration runs them with `pytest tests/drills`."""
