"""Tests of plantstore.sql.databases."""
