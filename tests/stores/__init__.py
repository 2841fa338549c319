"""Tests of plantstore.stores."""
