"""Drills that measure times: nothing else may run meanwhile."""
