"""Tests of the README and of docs/."""
