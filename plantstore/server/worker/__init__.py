"""A worker class for gunicorn that protects a service from slow and hostile clients.

It does not depend on the rest of plantstore. It needs names that gunicorn does not document. If the
installed version lacks one of them, :func:`missing_names` says which, and there is no worker class.
"""

from ._needs import missing_names

__all__ = ["Worker", "missing_names"]

if not missing_names():
    from ._worker import Worker
