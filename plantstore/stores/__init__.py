"""Stores of plants, opened by URL."""

from collections.abc import Callable

from .base import Plant, PlantExists, Store, StoreUnavailable
from .memory import MemoryStore

__all__ = ["MemoryStore", "Plant", "PlantExists", "Store", "StoreUnavailable", "open_store"]


def _memory(url: str) -> Store:
    if url != "memory://":
        raise ValueError("the URL of a memory store is memory://, with nothing behind it")
    return MemoryStore()


_OPENERS: dict[str, Callable[[str], Store]] = {"memory": _memory}


def open_store(url: str) -> Store:
    """Open the store that a URL names: ``memory://`` is a new :class:`MemoryStore`.

    Raises :exc:`ValueError` for a URL that no store answers to. Its message never
    repeats the URL, which may hold a password.
    """
    scheme = url.partition("://")[0]
    if scheme not in _OPENERS:
        known = ", ".join(f"{name}://" for name in sorted(_OPENERS))
        raise ValueError(f"not the URL of a store; it begins with one of: {known}")
    return _OPENERS[scheme](url)
