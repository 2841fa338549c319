"""The URLs of stores."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast
from urllib.parse import unquote_plus

from ..text import one_line
from .base import Store
from .memory import MemoryStore

#: The default URL of a store.
DEFAULT_STORE = "memory://"

# The group of the entry points by which other packages add stores. The name of an entry point is
# the scheme of a URL. Its value is a function that takes the URL and returns a Store.
_GROUP = "plantstore.stores"
# The option of an SQLite URL with which the file must exist. By default, it is mode=rwc.
_MODE = "mode=rw"


def _memory(url: str) -> Store:
    if url != "memory://":
        raise ValueError("the URL of a memory store must be exactly memory://")
    return MemoryStore()


def _sql(driver: str, extra: str) -> Callable[[str], Store]:
    def open_sql(url: str) -> Store:
        with _importing(driver, extra):
            import_module(driver)
        with _importing("sqlalchemy", extra):
            sql = _sql_package()
        return cast(Store, sql.open_url(url))

    return open_sql


def _sql_package() -> Any:
    """Import the SQL stores when a URL needs them, as a store of another package."""
    return import_module("plantstore.sql")


@contextmanager
def _importing(module: str, extra: str) -> Iterator[None]:
    """Raise ValueError instead of ImportError, and say whether the module is missing or broken."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            problem = f"is missing: pip install 'plantstore[{extra}]'"
        else:
            problem = f"is installed, but {module} cannot be imported: {one_line(error)}"
        raise ValueError(f"the driver for this URL {problem}") from error


# The functions that open a store, by the scheme of its URL. Other packages cannot replace them.
_OPENERS: dict[str, Callable[[str], Store]] = {
    "memory": _memory,
    "sqlite": _sql("sqlite3", "sqlite"),
    "postgresql": _sql("psycopg", "postgresql"),
    "postgres": _sql("psycopg", "postgresql"),
    "postgresql+psycopg": _sql("psycopg", "postgresql"),
    "mysql": _sql("pymysql", "mysql"),
    "mysql+pymysql": _sql("pymysql", "mysql"),
    "mariadb": _sql("pymysql", "mysql"),
    "mariadb+pymysql": _sql("pymysql", "mysql"),
}


def open_store(url: str) -> Store:
    """Return the store of a URL. The store opens its first connection on first use.

    :param url: ``memory://`` for a new :class:`MemoryStore`, the URL of a database, such as
        ``sqlite:///plants.db``, for a :class:`~plantstore.SQLStore`, or a URL whose scheme is
        the name of an entry point that another package has in the group ``plantstore.stores``.
    :raises ValueError: if no store has such a URL, if its driver or its package is missing or
        cannot be imported, or if several packages have its scheme. The message does not show
        the URL, which may contain a password.
    """
    if not _is_text(url):
        raise ValueError(
            "a URL must neither begin nor end with white space, nor have control characters"
        )
    scheme, separator, _ = url.partition("://")
    if separator and scheme in _OPENERS:
        return _OPENERS[scheme](url)
    entries = entry_points(group=_GROUP, name=scheme) if separator else ()
    if not entries:
        known = ", ".join(f"{name}://" for name in _schemes())
        raise ValueError(f"not the URL of a store; it must begin with one of: {known}")
    if len(entries) > 1:
        packages = ", ".join(sorted(map(_package, entries)))
        raise ValueError(f"several packages have a store for {scheme}://, keep one: {packages}")
    return _open_installed(next(iter(entries)), url)


def existing(url: str) -> str:
    """Return the URL of a store that never creates a database: SQLite then needs an existing file.

    :param url: the URL of a store. In that of an SQLite file, mode=rw replaces mode=rwc, and is
        added if there is no option mode.
    """
    if not url.startswith("sqlite:") or not _is_text(url):
        return url  # A URL that is wrong is refused when it is opened.
    file, _, query = url.partition("?")
    options = [
        _MODE if unquote_plus(option) == f"{_MODE}c" else option
        for option in query.split("&")
        if option
    ]
    if not any(re.match("mode(=|$)", unquote_plus(option)) for option in options):
        options.append(_MODE)
    return f"{file}?{'&'.join(options)}"


def public_url(url: str) -> str:
    """Return the URL of a store without anything secret, for a message.

    :param url: a URL that :func:`open_store` accepts.
    :returns: the URL without its password and its options. Of the URL for a store of another
        package, only the scheme is known to be public, such as ``shelf://…``.
    :raises ValueError: if it is not the URL of a database. The message does not show it.
    """
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return "memory://"
    if scheme not in _OPENERS:
        return f"{scheme}://…"
    return cast(str, _sql_package().public_url(url))


def _is_text(url: str) -> bool:
    return url == url.strip() and not any(unicodedata.category(char) == "Cc" for char in url)


def _schemes() -> list[str]:
    installed = {entry.name for entry in entry_points(group=_GROUP)}
    return [*_OPENERS, *sorted(installed - _OPENERS.keys())]


def _open_installed(entry: EntryPoint, url: str) -> Store:
    """Return the store that the function of an entry point opens.

    :raises ValueError: if the function cannot be imported, or returns no store.
    """
    try:
        opener = _load(entry)
        store = opener(url) if callable(opener) else None
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            problem = f"needs the module {error.name}, which is not installed"
        else:
            problem = f"cannot be imported: {one_line(error)}"
        raise ValueError(f"the package {_package(entry)} {problem}") from error
    if not isinstance(store, Store):
        raise ValueError(
            f"the entry point {entry.name} of the package {_package(entry)} must be a function"
            " that takes a URL and returns a Store"
        )
    return store


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except AttributeError as error:
        raise ImportError(str(error)) from error  # The module has no such function.


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
