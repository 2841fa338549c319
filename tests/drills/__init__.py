"""Tests that break services under load. They take minutes: `tox -e drills` runs them."""
