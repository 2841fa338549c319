"""Plants in a SQL database, through SQLAlchemy Core. This package needs SQLAlchemy."""

from ._store import SQLStore

__all__ = ["SQLStore"]
