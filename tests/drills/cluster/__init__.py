"""Drills with several database servers, or with one and a proxy in front of it."""
