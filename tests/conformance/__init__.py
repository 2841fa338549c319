"""Tests by tools that know only the OpenAPI document: requirements.txt has them, and npm."""
