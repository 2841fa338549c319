"""Tests of plantstore.openapi."""
