"""The Host header, and the URL that a client has requested."""

import re
from urllib.parse import quote

from flask import request

#: A valid Host header (RFC 9110 section 7.2, RFC 3986 section 3.2.2). It is not empty.
HOST: re.Pattern[str] = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})+)(:[0-9]*)?"
)
# A URL prefix that a proxy has removed: segments (RFC 3986 section 3.3) other than . and ..
_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*/?")


def requested_url(scheme: str = "", host: str = "", prefix: str = "") -> str:
    """Return the URL of the current request without its query.

    :param scheme: replaces the scheme of the request, unless it is empty.
    :param host: replaces the host of the request, unless it is empty.
    :param prefix: precedes the path of the request.
    """
    # request.base_url would decode the host, which can fail. HTTP/1.0 does not require the header.
    host = host or request.headers.get("Host") or request.host
    path = quote(request.script_root + request.path, safe="/!$&'()*+,;=:@")
    return f"{scheme or request.scheme}://{host}{prefix}{path}"


def forwarded_url() -> str:
    """Return the URL that the client has requested from a proxy in front of the service.

    A header X-Forwarded-Host, -Proto or -Prefix that is not valid has no effect. The headers need
    not be those of the proxy: this client is the only one that gets the URL.
    """
    scheme, host, prefix = map(_forwarded, ("Proto", "Host", "Prefix"))
    return requested_url(
        scheme if scheme in {"http", "https"} else "",
        host if HOST.fullmatch(host) else "",
        prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else "",
    )


def _forwarded(name: str) -> str:
    """Return the first value of a header: that of the proxy which the client has reached."""
    values = request.headers.get(f"X-Forwarded-{name}", "")
    return values.partition(",")[0].strip()
