"""Tests that install the package into other projects.

The steps `install` and `build` run them.
"""
