"""The response of the application (PEP 3333), with the bytes that gunicorn sends.

gunicorn formats the date and matches two regular expressions for each header in each request.
"""

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gunicorn import SERVER
from gunicorn.util import http_date

from ._client import Client

# The bytes that may wait for a client while the application produces more.
_MAX_OUTPUT = 1 << 20
_STATUS = re.compile(r"[1-9][0-9]{2}(?: [ \t\x21-\x7e\x80-\xff]*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[ \t\x21-\x7e\x80-\xff]*")
# The server itself sends these headers.
_OF_THE_SERVER = {
    *("connection", "date", "keep-alive", "proxy-authenticate", "proxy-authorization", "server"),
    *("te", "trailers", "transfer-encoding", "upgrade"),
}


class Response:
    """The response to the request of a connection. Hooks and the log of gunicorn read it.

    :param is_last: whether the connection ends afterwards in any case.
    """

    def __init__(self, client: Client, *, is_last: bool) -> None:
        self._client, self._request = client, client.request
        self.closes = is_last or client.request.should_close()
        self.status: str | None = None
        self.headers: list[tuple[str, str]] = []
        self.headers_sent = False
        self.sent = 0
        self._length: int | None = None
        self._has_body = self._is_chunked = False

    def start_response(
        self, status: str, headers: Sequence[tuple[str, str]], exc_info: Any = None
    ) -> Any:
        """Set the status and the headers. After an exception, they replace the earlier ones.

        :raises ValueError: if they cannot be sent.
        """
        if self.headers_sent and exc_info:
            raise exc_info[1].with_traceback(exc_info[2])
        if self.status and not exc_info:
            raise AssertionError("start_response was called before")
        if not _STATUS.fullmatch(status):
            raise ValueError("the status is invalid")
        code = int(status[:3])
        self.status, self.headers, self._length = status, [], None
        for name, value in headers:
            self._add(name, value, has_length=code >= 200 and code != 204)
        self._has_body = self._request.method != "HEAD" and code >= 200 and code not in {204, 304}
        has_no_end = self._has_body and self._length is None
        self._is_chunked = has_no_end and self._request.version > (1, 0)
        self.closes = self.closes or has_no_end and not self._is_chunked
        return self.write

    def _add(self, name: str, value: str, *, has_length: bool) -> None:
        kind, value = _kind(name), value.strip(" \t")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} is invalid")
        if kind == "content-length" and has_length:
            self._length = _length(value)
        elif kind:
            return
        self.headers.append((name, value))

    def write(self, data: bytes) -> None:
        """Send a part of the body. The first one is sent together with the headers.

        :raises ClientGone: if the client does not read what was sent before.
        """
        if not isinstance(data, bytes):
            raise TypeError("a part of the body is not bytes")
        head = b""
        if self.headers_sent:  # A single part, however large, waits without a thread.
            self._client.wait_for_output(_MAX_OUTPUT)
        else:
            head = self._head()
        if not self._has_body:
            data = b""
        elif self._length is not None:
            data = data[: self._length - self.sent]
        self.sent += len(data)
        if self._is_chunked and data:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        self.headers_sent = True
        if head or data:
            self._client.send(head + data)

    def finish(self) -> None:
        """Send what is missing. If the body is too short, the connection ends."""
        if not self.headers_sent:
            self.write(b"")
        if self._is_chunked:
            self._client.send(b"0\r\n\r\n")
        if self._has_body and self._length is not None and self.sent < self._length:
            self.closes = True

    def _head(self) -> bytes:
        if not self.status:
            raise AssertionError("start_response was not called")
        lines = [
            f"HTTP/1.{self._request.version[1]} {self.status}",
            f"Server: {SERVER}",
            f"Date: {_date(int(time.time()))}",
            "Connection: close" if self.closes else "Connection: keep-alive",
        ]
        if self._is_chunked:
            lines.append("Transfer-Encoding: chunked")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@lru_cache(256)
def _kind(name: str) -> str:
    """Return ``content-length``, the name of a header that is not sent, or an empty text."""
    if not _NAME.fullmatch(name):
        raise ValueError("the name of a header is invalid")
    kind = name.lower()
    return kind if kind == "content-length" or kind in _OF_THE_SERVER else ""


def _length(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ValueError("the value of the header Content-Length is invalid")
    return int(value)


@lru_cache(1)
def _date(second: int) -> str:
    date: str = http_date(second)
    return date
