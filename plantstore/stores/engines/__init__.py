"""The engines of databases: one entry for each, with everything in which it differs."""

import re
from urllib.parse import unquote

from sqlalchemy import URL, Engine, exc, make_url

from .backend import POOL_SIZE, Backend
from .mysql import MySQL
from .postgresql import PostgreSQL
from .sqlite import SQLite

__all__ = ["POOL_SIZE", "Backend", "backend_of", "make_engine"]

# The entries by the name of the engine in a URL, which is also the name of SQLAlchemy's dialect.
_BACKENDS: dict[str, Backend] = {
    "sqlite": SQLite(),
    "postgresql": PostgreSQL(),
    "mysql": MySQL(),
}
_BACKENDS |= {"postgres": _BACKENDS["postgresql"], "mariadb": _BACKENDS["mysql"]}


def backend_of(engine: Engine) -> Backend:
    """Return the entry of an engine.

    :raises ValueError: if there is none.
    """
    try:
        return _BACKENDS[engine.dialect.name]
    except KeyError:
        raise ValueError(
            f"SQLStore cannot use a database of {engine.dialect.name}, only SQLite, PostgreSQL,"
            " MariaDB and MySQL"
        ) from None


def make_engine(url: str) -> Engine:
    """Return the engine of a database. The engine opens its first connection on first use.

    Each statement is a transaction by default. All steps of an operation have one deadline.

    :param url: the URL of the database.
    :raises ValueError: if it is not the URL of a database, or if an option is unknown or invalid.
        The message does not show the URL.
    :raises ImportError: if the driver is not installed.
    """
    parsed = _parse(url)
    _check_complete(url, parsed)
    return _BACKENDS[parsed.get_backend_name()].make_engine(parsed)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None or not _is_valid(parsed) or "\0" in unquote(url):
        raise ValueError(
            "not the URL of a database, such as sqlite:///plants.db or"
            " postgresql://user:password@host/name; in the password write @ as %40 and / as %2F"
        )
    return parsed


def _is_valid(url: URL) -> bool:
    # An @ in the host would be the end of a password.
    host, port = url.host or "", 1 if url.port is None else url.port
    return url.database not in {None, "", ":memory:"} and "@" not in host and 0 < port < 2**16


def _check_complete(url: str, parsed: URL) -> None:
    """Raise ValueError for an option without a value. SQLAlchemy ignores such options."""
    with_values = make_url(re.sub("(?<=[?&])([^=&]+)=?(?=&|$)", r"\1=-", url))
    empty = sorted(with_values.query.keys() - parsed.query.keys())
    if empty:
        raise ValueError(f"the URL has an option without a value: {empty[0]!r}")
