"""The kinds of databases: one class for each, with everything in which it differs."""

import os
import re
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from sqlalchemy import URL, Engine, exc, make_url

from ._database import Database, Run, close, copy_engine, driver_of
from ._mysql import MySQL
from ._options import shown
from ._postgresql import PostgreSQL
from ._sqlite import SQLite, file_of, is_in_memory, is_new

__all__ = ["database_of", "file_of", "is_in_memory", "is_new", "make_engine", "public_url"]
__all__ += ["Database", "Run", "close", "copy_engine", "driver_of"]  # For lanes and sites.

# What may follow the scheme in the URL of a server with credentials. The password may contain
# separators. But in me:1234/db@host, 1234 may be a password or a port: such a URL is refused.
_CREDENTIALS = re.compile(r"[^:/?#@\[\]]*(:(?![0-9]*[/?#])[^@]*)?@[^@]*")

# The databases by their name in a URL, which is also the name of SQLAlchemy's dialect.
_DATABASES: dict[str, type[Database]] = {
    "sqlite": SQLite,
    **dict.fromkeys(("postgresql", "postgres"), PostgreSQL),
    **dict.fromkeys(("mysql", "mariadb"), MySQL),
}


def database_of(engine: Engine) -> type[Database]:
    """Return the kind of an engine's database, or raise ValueError if SQLStore has none for it."""
    try:
        return _DATABASES[engine.dialect.name]
    except KeyError:
        raise ValueError(
            f"SQLStore cannot use a database of {engine.dialect.name}, only SQLite, PostgreSQL,"
            " MariaDB and MySQL"
        ) from None


def make_engine(url: str) -> Engine:
    """Return the engine of a database. The engine opens its first connection on first use.

    :raises ValueError: if it is not the URL of a database, or if an option is unknown or invalid.
        The message does not show the URL.
    :raises ImportError: if the driver is not installed.
    """
    parsed = _parse(url)
    # SQLAlchemy ignores options without a value.
    options = parse_qsl(url.rpartition("@")[2].partition("?")[2], keep_blank_values=True)
    for name, value in options:
        if not value:
            raise ValueError(f"the URL has an option without a value: {shown(name, dict(options))}")
    return _DATABASES[parsed.get_backend_name()].make_engine(parsed)


def public_url(url: str) -> str:
    """Return the URL of a database without its password, and without its options but hosts.

    That of an SQLite file has the whole path: the folder of a process may be any.
    """
    parsed = _parse(url)
    if parsed.drivername == "sqlite":
        return f"sqlite:///{os.path.abspath(parsed.database or '')}"
    scheme, _, rest = url.partition("://")
    credentials, at, address = rest.rpartition("@")
    address, _, query = address.partition("?")
    servers = "&".join(part for part in query.split("&") if re.match("(host|port)=", part))
    public = f"{scheme}://{credentials.partition(':')[0]}{at}{address}"
    return f"{public}?{servers}" if servers else public


def _parse(url: str) -> URL:
    with suppress(exc.ArgumentError, ValueError):
        if _is_certain(url) and "\0" not in unquote(url):
            parsed = make_url(url)
            if parsed.drivername == "sqlite" and parsed.host is None:
                # Some versions of SQLAlchemy decode the path.
                parsed = parsed.set(database=url.partition(":///")[2].partition("?")[0])
            if _is_valid(parsed):
                return parsed
    raise ValueError(
        "not the URL of a database, such as sqlite:///plants.db or"
        " postgresql://user:password@host/name; in the password write @ as %40 and / as %2F"
    )


def _is_valid(url: URL) -> bool:
    """Return whether the parts of a URL are valid, or raise the UnicodeError of its host."""
    host, port = url.host or "", 1 if url.port is None else url.port
    if not unquote(host).startswith("/"):  # The folder of a socket.
        host.encode("idna")  # The drivers would raise the error later.
    has_database = url.database not in {None, "", ":memory:"}
    return has_database and "," not in host and 0 < port < 2**16  # One server.


def _is_certain(url: str) -> bool:
    """Return whether no part of a password can be taken for another part of the URL."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return True  # It has no password, and a path of any bytes.
    rest.encode()  # That of a server must be Unicode.
    return "@" not in rest or _CREDENTIALS.fullmatch(rest) is not None
