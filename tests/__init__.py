"""The tests of plantstore. The docstring of each test states one guarantee."""
