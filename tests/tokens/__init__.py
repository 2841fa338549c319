"""Tests of plantstore.tokens."""
