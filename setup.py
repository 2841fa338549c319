"""Build the package: its configuration is in setup.cfg."""

from setuptools import setup

setup()
