"""Build the package: everything there is to say stands in setup.cfg."""

from setuptools import setup

setup()
