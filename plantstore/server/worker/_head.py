"""The size of a request, as far as it is known before a thread reads it."""

import re

#: The maximum size of the head of a request, in bytes.
MAX_HEAD = 65536
#: The maximum size in bytes of a body for which no thread waits.
MAX_BODY = 65536

# The header fields that determine where a body ends, and when the client sends it.
_FRAMING = re.compile(
    rb"\r\n(content-length|transfer-encoding|expect)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE
)


def head_size(received: bytearray, size: int) -> int:
    """Return the size of the head of a request, or 0 if it is not complete.

    :param received: what has been received.
    :param size: the number of its bytes.
    """
    end = received.find(b"\r\n\r\n", 0, min(size, MAX_HEAD))
    return 0 if end < 0 else end + 4


def body_size(received: bytearray, head: int) -> int | None:
    """Return the size of the body of a request, or ``None`` if a thread must wait for the body.

    It is too large, or chunked, or the client waits for the status 100. The parser of the server
    judges the request later: this only decides when to call it.

    :param received: what has been received.
    :param head: the size of the head.
    """
    fields = _FRAMING.findall(received, 0, head)
    if not fields:
        return 0
    name, value = fields[0]
    is_length = len(fields) == 1 and name.lower() == b"content-length"
    # A number with more digits is too large.
    if not is_length or not value.isdigit() or len(value) > len(str(MAX_BODY)):
        return None
    return int(value) if int(value) <= MAX_BODY else None
