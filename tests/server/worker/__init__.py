"""Tests of plantstore.server.worker."""
