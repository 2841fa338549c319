"""Plants in a SQL database, through SQLAlchemy Core. This package needs SQLAlchemy."""

import sqlalchemy

if sqlalchemy.__version__.startswith("1."):
    raise ImportError(
        "SQLStore needs SQLAlchemy 2.0.23 or later. This site has SQLAlchemy"
        f" {sqlalchemy.__version__}."
    )

from ._backup import back_up
from ._store import SQLStore
from .databases import file_of, is_new, make_engine, public_url

__all__ = ["SQLStore", "back_up", "file_of", "is_new", "make_engine", "public_url"]
