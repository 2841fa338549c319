"""Tests that install the package into other projects: the steps `install` and `build`."""
