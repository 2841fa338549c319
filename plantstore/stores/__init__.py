"""Stores of plants, opened by URL."""

from collections.abc import Callable

from .base import Plant, PlantExists, Store, StoreUnavailable
from .memory import MemoryStore

__all__ = ["MemoryStore", "Plant", "PlantExists", "Store", "StoreUnavailable", "open_store"]

Opener = Callable[[str], Store]


def _memory(url: str) -> Store:
    if url != "memory://":
        raise ValueError("the URL of a memory store is memory://, with nothing behind it")
    return MemoryStore()


def _sql(extra: str) -> Opener:
    def open_sql(url: str) -> Store:
        try:
            from .engines import make_engine
            from .sql import SQLStore

            return SQLStore(make_engine(url))
        except ImportError:
            raise ValueError(f"its driver is missing: pip install 'plantstore[{extra}]'") from None

    return open_sql


_OPENERS: dict[str, Opener] = {
    "memory": _memory,
    "sqlite": _sql("sqlite"),
    "postgresql": _sql("postgresql"),
    "postgres": _sql("postgresql"),
    "postgresql+psycopg": _sql("postgresql"),
    "mysql": _sql("mysql"),
    "mysql+pymysql": _sql("mysql"),
    "mariadb": _sql("mysql"),
    "mariadb+pymysql": _sql("mysql"),
}


def open_store(url: str) -> Store:
    """Open the store that a URL names; nothing is connected to before it is used.

    ``memory://`` is a new :class:`MemoryStore`, the URL of a database an
    :class:`~plantstore.stores.sql.SQLStore`. Raises :exc:`ValueError` for a URL that no
    store answers to, or whose driver is not installed. Its message never repeats the URL,
    which may hold a password.
    """
    scheme = url.partition("://")[0]
    if scheme not in _OPENERS:
        known = ", ".join(f"{name}://" for name in _OPENERS)
        raise ValueError(f"not the URL of a store; it begins with one of: {known}")
    return _OPENERS[scheme](url)
