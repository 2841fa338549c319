"""Tests of the service by tools that know only its OpenAPI document.

They need tests/conformance/requirements.txt and npm.
"""
