"""Tests of plantstore.server."""
