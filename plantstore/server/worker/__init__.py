"""A worker class for gunicorn that protects a service from slow and hostile clients.

It does not depend on the rest of plantstore. It needs names that gunicorn does not document. If the
installed version, or the system, lacks one of them, :data:`missing` says which, and there is no
worker class.
"""

__all__ = ["Worker", "missing"]

missing: str = ""
try:
    from ._worker import Worker
except ImportError as _error:
    missing = str(_error)
