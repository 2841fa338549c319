"""Tests of plantstore.sql.engines."""
