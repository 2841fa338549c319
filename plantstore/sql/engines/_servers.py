"""Several servers in the URL of a database: ``user@host1:1234,host2:1234/name``, as in libpq."""

import re

from sqlalchemy import URL, make_url

_SERVER = re.compile(r"(?:\[([^][]+)\]|([^][:\s]+))(?::([0-9]{1,5}))?")


def parse_url(url: str) -> URL:
    """Return a URL. If it names several servers, they become its options ``host`` and ``port``.

    :param url: the URL. Its only ``@`` is that before its servers.
    :raises ValueError: if the URL is invalid.
    :raises sqlalchemy.exc.ArgumentError: if it is not a URL.
    """
    before, servers, after = _split(url)
    if "," not in servers or before.startswith("sqlite"):
        return make_url(url)
    parsed = make_url(before + after)
    if parsed.query.keys() & {"host", "port"}:
        raise ValueError  # The URL names its servers twice.
    hosts, ports = zip(*map(_parse_server, servers.split(",")), strict=True)
    return parsed.update_query_dict({"host": ",".join(hosts), "port": ",".join(ports)})


def _split(url: str) -> tuple[str, str, str]:
    """Return what is before the servers of a URL, the servers, and what follows them."""
    start = max(url.find("://") + 3, url.rfind("@") + 1)
    servers = re.split("[/?#]", url[start:])[0]
    return url[:start], servers, url[start + len(servers) :]


def _parse_server(server: str) -> tuple[str, str]:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match[3] or 1) < 2**16:
        raise ValueError
    host = match[1] or match[2]
    host.encode("idna")  # The drivers would raise UnicodeError later.
    return host, match[3] or ""
