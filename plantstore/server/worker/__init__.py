"""A worker class for gunicorn that protects a service from slow and hostile clients.

It does not depend on the rest of plantstore.
"""

from ._worker import Worker

__all__ = ["Worker"]
