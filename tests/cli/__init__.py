"""Tests of plantstore.cli."""
