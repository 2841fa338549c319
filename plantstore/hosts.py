"""The Host header."""

import re

# RFC 9110 section 7.2, RFC 3986 section 3.2.2. An http URL has a host that is not empty.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})+)(:[0-9]*)?")


def is_host(text: str) -> bool:
    """Return whether a text is a valid value of a Host header."""
    return _HOST.fullmatch(text) is not None
