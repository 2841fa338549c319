"""Helpers of the tests: servers, clients, sites, and access to the documents."""
