"""The address of a client behind a proxy."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def behind_proxies(app: "WSGIApplication", proxies: Iterable[str]) -> "WSGIApplication":
    """Return an application that sees the address of the client, not that of a trusted proxy.

    It is the last address in X-Forwarded-For: a client chooses only those before it.

    :param app: the application.
    :param proxies: the addresses and networks of the trusted proxies, or ``*`` for all, as in the
        setting ``forwarded_allow_ips`` of gunicorn. A proxy on a Unix socket is always trusted.
    """
    is_trusted = _trust(proxies)

    def forward(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        forwarded = environ.get("HTTP_X_FORWARDED_FOR")
        if forwarded is not None and is_trusted(environ["REMOTE_ADDR"]):
            address = forwarded.rpartition(",")[2].strip()
            if _is_address(address):
                environ["REMOTE_ADDR"] = address
        return app(environ, start)

    return forward


def _trust(proxies: Iterable[str]) -> Callable[[str], bool]:
    named = {*proxies}
    networks = [ip_network(name) for name in named - {"*"}]

    @lru_cache  # A service has few proxies.
    def is_trusted(address: str) -> bool:
        if not address or "*" in named:
            return True
        return any(ip_address(address) in network for network in networks)

    return is_trusted


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
