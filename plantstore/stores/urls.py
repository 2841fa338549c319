"""The URLs of stores."""

import unicodedata
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast
from urllib.parse import unquote_plus

from ..text import one_line
from .base import Store
from .memory import MemoryStore

#: The default URL of a store, and what is reported of it.
DEFAULT_STORE = "memory://"
LOST = "the plants are lost when the process ends"

# The group of the entry points by which other packages add stores. The name of an entry point is
# the scheme of a URL. Its value is a function that takes the URL and returns a Store.
_GROUP = "plantstore.stores"
# The package of the SQL stores. It is imported when a URL needs it.
_SQL = "plantstore.sql"
# The driver of a database and the extra that installs it, by the scheme of a URL. Other packages
# cannot replace these schemes, nor memory.
_POSTGRESQL, _MYSQL = ("psycopg", "postgresql"), ("pymysql", "mysql")
_DATABASES = {
    "sqlite": ("sqlite3", "sqlite"),
    **dict.fromkeys(("postgresql", "postgres", "postgresql+psycopg"), _POSTGRESQL),
    **dict.fromkeys(("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"), _MYSQL),
}


def open_store(url: str) -> Store:
    """Return the store of a URL. The store opens its first connection on first use.

    :param url: ``memory://`` for a new :class:`MemoryStore`, the URL of a database, such as
        ``sqlite:///plants.db``, for a :class:`~plantstore.SQLStore`, or a URL whose scheme is
        the name of an entry point that another package has in the group ``plantstore.stores``.
    :raises ValueError: if no store has such a URL, or if its driver is missing or cannot be
        imported. The message does not show the URL, which may contain a password. What an entry
        point raises is not changed. If several have the scheme, it is the first that
        :mod:`importlib.metadata` finds.
    """
    if not _is_text(url):
        raise ValueError(
            "a URL must neither begin nor end with white space, nor have control characters"
        )
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        if rest:
            raise ValueError("the URL of a memory store must be exactly memory://")
        return MemoryStore()
    if separator and scheme in _DATABASES:
        return _open_sql(url, *_DATABASES[scheme])
    entries = entry_points(group=_GROUP)
    named = entries.select(name=scheme) if separator else ()
    if named:
        return cast(Store, next(iter(named)).load()(url))
    others = {entry.name for entry in entries} - {"memory", *_DATABASES}
    listed = ", ".join(f"{name}://" for name in ("memory", *_DATABASES, *sorted(others)))
    raise ValueError(f"not the URL of a store; it must begin with one of: {listed}")


def existing(url: str) -> str:
    """Return the URL of a store that never creates a database: of an SQLite file, with mode=rw.

    It replaces mode=rwc, which is also the default.
    """
    if not url.startswith("sqlite:") or not _is_text(url):
        return url  # A URL that is wrong is refused when it is opened.
    file, _, query = url.partition("?")
    options = [part for part in query.split("&") if unquote_plus(part) not in {"", "mode=rwc"}]
    if not any(unquote_plus(part).partition("=")[0] == "mode" for part in options):
        options.append("mode=rw")
    return f"{file}?{'&'.join(options)}"


def public_url(url: str) -> str:
    """Return the URL of a store without its password and its options, for a message.

    Of the URL for a store of another package, only the scheme is public, such as ``shelf://…``.

    :raises ValueError: if it is not the URL of a database. The message does not show it.
    """
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return "memory://"
    if scheme not in _DATABASES:
        return f"{scheme}://…"
    return cast(str, import_module(_SQL).public_url(url))


def _is_text(url: str) -> bool:
    return url == url.strip() and not any(unicodedata.category(char) == "Cc" for char in url)


def _open_sql(url: str, driver: str, extra: str) -> Store:
    """Import a driver and the SQL stores, and open one.

    :raises ValueError: if this fails. The message says whether a module is missing or broken.
    """
    for name, module in (driver, driver), ("sqlalchemy", _SQL):
        try:
            package: Any = import_module(module)
        except ImportError as error:
            problem = f"is installed, but {name} cannot be imported: {one_line(error)}"
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                problem = f"is missing: pip install 'plantstore[{extra}]'"
            raise ValueError(f"the driver for this URL {problem}") from error
    return cast(Store, package.SQLStore(package.make_engine(url)))
