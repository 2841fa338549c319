"""The stores, and open_store."""

from collections.abc import Callable

from ..arguments import type_error
from .base import Plant, PlantExists, Store, StoreMisconfigured, StoreUnavailable
from .memory import MemoryStore

__all__ = [
    "MemoryStore",
    "Plant",
    "PlantExists",
    "Store",
    "StoreMisconfigured",
    "StoreUnavailable",
    "open_store",
]


def _memory(url: str) -> Store:
    if url != "memory://":
        raise ValueError("the URL of a memory store must be exactly memory://")
    return MemoryStore()


def _sql(extra: str) -> Callable[[str], Store]:
    def open_sql(url: str) -> Store:
        try:
            from .engines import make_engine
            from .sql import SQLStore

            return SQLStore(make_engine(url))
        except ImportError:
            raise ValueError(
                f"the driver for this URL is missing: pip install 'plantstore[{extra}]'"
            ) from None

    return open_sql


# The functions that open a store, by the scheme of its URL.
_OPENERS: dict[str, Callable[[str], Store]] = {
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
    """Return the store of a URL. The store opens its first connection on first use.

    :param url: ``memory://`` for a new :class:`MemoryStore`, or the URL of a database, such as
        ``sqlite:///plants.db``, for a :class:`~plantstore.SQLStore`.
    :raises TypeError: if the URL is not a string.
    :raises ValueError: if no store has such a URL, or its driver is not installed. The message
        does not show the URL, which may contain a password.
    """
    if not isinstance(url, str):
        raise type_error("url", "the URL of a store", url)
    scheme = url.partition("://")[0]
    if scheme not in _OPENERS:
        known = ", ".join(f"{name}://" for name in _OPENERS)
        raise ValueError(f"not the URL of a store; it must begin with one of: {known}")
    return _OPENERS[scheme](url)
