"""Plants in a SQL database, through SQLAlchemy Core. This package needs SQLAlchemy."""

import sqlalchemy

if sqlalchemy.__version__.startswith("1."):
    raise ImportError(
        "SQLStore needs SQLAlchemy 2.0.23 or later. This site has SQLAlchemy"
        f" {sqlalchemy.__version__}."
    )

from ._backup import back_up, database_file
from ._store import SQLStore
from .databases import is_new, make_engine, public_url

__all__ = [
    "SQLStore",
    "back_up",
    "database_file",
    "is_new",
    "make_engine",
    "open_url",
    "public_url",
]


def open_url(url: str) -> SQLStore:
    """Return the store of a database's URL. It opens its first connection on first use.

    :raises ValueError: if it is not the URL of a database, or if an option is unknown or invalid.
        The message does not show the URL.
    :raises ImportError: if the driver is not installed.
    """
    return SQLStore(make_engine(url))
