"""Tests that install the package into other projects.

Continuous integration runs them with `pytest tests/installation`.
"""
