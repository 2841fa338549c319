"""Tests of plantstore.observability."""
