"""The addresses of clients behind proxies, for the log."""

from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from werkzeug.middleware.proxy_fix import ProxyFix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def behind_proxies(app: "WSGIApplication", number: int) -> "WSGIApplication":
    """Return an application that sees the address of the client, not that of the last proxy.

    It is the address in ``X-Forwarded-For`` to which the first of the proxies has responded. A
    text that is not an address is ignored, so a client never chooses a text of the log.

    :param app: the application.
    :param number: the number of proxies, each of which adds the address of its client.
    """

    def forward(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        original = environ["werkzeug.proxy_fix.orig"]["REMOTE_ADDR"]
        environ["REMOTE_ADDR"] = _find_address(environ["REMOTE_ADDR"]) or original
        return app(environ, start_response)

    return ProxyFix(forward, x_for=number, x_proto=0, x_host=0)


def _find_address(text: str) -> str | None:
    """Return the address in a text that may also have a port, or ``None`` if there is none."""
    host, _, port = text.rpartition(":")
    for address in (text, host if port.isdecimal() else ""):
        with suppress(ValueError):
            # The scope of an address could be any text.
            return str(ip_address(address.removeprefix("[").removesuffix("]"))).partition("%")[0]
    return None
