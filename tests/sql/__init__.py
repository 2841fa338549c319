"""Tests of plantstore.sql."""
