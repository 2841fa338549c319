"""Where a request ends in the bytes that have arrived of it."""

import re

from ._refusals import RefusedRequest

#: The maximum size of the head of a request, in bytes.
MAX_HEAD = 65536
# The maximum number of header fields. gunicorn's parser in C takes more for another fault.
_MAX_FIELDS = 256
# The maximum size of the line before a chunk, and of the trailers after the last one, in bytes.
_MAX_LINE = 8192
# The maximum number of bytes of a chunked body that are not content: a few thousand chunks. To look
# for the ends of more would take much processor time before the token is known.
_MAX_FRAMING = 16384
# What no head has: a control character, or an end of a line that is not CR LF.
_NEVER_IN_A_HEAD = re.compile(rb"[\0-\x08\v\f\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
# The line before a chunk, and the trailers after the last one. A proxy and gunicorn must agree
# where each line ends. gunicorn checks everything else.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t -~\x80-\xff]*)?")
_TRAILERS = re.compile(rb"\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n")
# The first bytes of a header of version 2 of the PROXY protocol. They have an empty line.
_PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"


class EndlessBody(Exception):
    """A body is too large or malformed: its end is not looked for."""


def proxy_header_size(data: bytearray) -> int | None:
    """Return the size of a header of version 2 of the PROXY protocol, or 0 if there is none.

    It is ``None`` if more must arrive. A header of version 1 is the first line of the head.
    """
    if data.startswith(_PROXY_V2):
        size = 16 + int.from_bytes(data[14:16], "big")
        return size if len(data) >= size else None
    return None if _PROXY_V2.startswith(data) else 0


def head_end(data: bytearray, start: int, seen: int) -> int | None:
    """Return the position after the head of a request, or ``None`` if more must arrive.

    :param start: the position at which the head begins.
    :param seen: the size of the data in which an earlier call has found no end.
    :raises RefusedRequest: if no head can begin so, or if it is too large.
    """
    end = data.find(b"\r\n\r\n", max(start, seen - 3), start + MAX_HEAD)
    if end >= 0 and data.count(b"\r\n", start, end) <= _MAX_FIELDS:
        return end + 4
    if _NEVER_IN_A_HEAD.search(data, max(start, seen - 1)):
        raise RefusedRequest(40000, "The head has a control character, or a line without CR LF.")
    if len(data) - start >= MAX_HEAD and data.find(b"\r\n", start, start + _MAX_LINE) < 0:
        raise RefusedRequest(41400, "The request line is too long.")
    if end >= 0 or len(data) - start >= MAX_HEAD:
        raise RefusedRequest(43100, "The headers are too many or too large.")
    return None


class ChunkedBody:
    """A chunked body (RFC 9112 section 7.1).

    :param start: the position at which it begins.
    :param limit: the maximum size of its content, in bytes.
    """

    def __init__(self, start: int, limit: int) -> None:
        self._next, self._room, self._framing = start, limit, _MAX_FRAMING

    def end(self, data: bytearray) -> int | None:
        """Return the position after the body, or ``None`` if more must arrive.

        :param data: all bytes that have arrived, also those of earlier calls.
        :raises EndlessBody: if more than the limit has arrived, or something that is no chunk.
        :raises RefusedRequest: if the trailers are too large.
        """
        while (line := data.find(b"\r\n", self._next, self._next + _MAX_LINE)) >= 0:
            found = _CHUNK_LINE.fullmatch(data, self._next, line)
            if found is None:
                raise EndlessBody
            size, begin = int(found[1], 16), line + 2
            if not size:
                return _trailers_end(data, line)
            if min(size, len(data) - begin) > self._room:
                raise EndlessBody
            end = begin + size
            if len(data) < end + 2:
                break
            if data[end : end + 2] != b"\r\n":
                raise EndlessBody
            self._room -= size
            self._framing -= end + 2 - self._next - size
            self._next = end + 2
            if self._framing < 0:
                raise EndlessBody
        if line < 0 and len(data) - self._next >= _MAX_LINE:
            raise EndlessBody
        return None


def _trailers_end(data: bytearray, start: int) -> int | None:
    end = data.find(b"\r\n\r\n", start, start + _MAX_LINE)
    if end < 0 and len(data) - start >= _MAX_LINE:
        raise RefusedRequest(43100, "The trailers are too large.")
    if end >= 0 and _TRAILERS.fullmatch(data, start, end + 4) is None:
        raise EndlessBody
    return None if end < 0 else end + 4
