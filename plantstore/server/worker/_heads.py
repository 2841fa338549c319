"""The head of a request. gunicorn parses it, and makes the environ (PEP 3333) from it.

The heads of a connection mostly differ in a few lines: an id, the client of a proxy, the length of
the body. The worker keeps the last head with each number of lines: behind a proxy, creates and
reads may alternate. It keeps the request object and the environ, and takes only the lines of the
next head that differ. Without this, a create through a proxy would take 40 % longer.
"""

import re
from typing import Any

from gunicorn.http.errors import ConfigurationProblem, NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.http.wsgi import WSGIErrorsWrapper, create
from gunicorn.util import unquote_to_wsgi_str

from ._client import Client, Head
from ._refusals import RefusedRequest

# The maximum size of a head that is kept, and the memory of those of a connection, in bytes.
_MAX_KEPT, _MAX_MEMORY = 2048, 24_000
# The fields that are used for more than their own variables in the environ. If one of them differs,
# the whole head is parsed.
_USED = {"CONNECTION", "EXPECT", "HOST", "TRANSFER-ENCODING"}


class _Errors:
    """The stream ``wsgi.errors``, which gunicorn opens for each request: few write to it."""

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def __getattr__(self, name: str) -> Any:
        return getattr(WSGIErrorsWrapper(self._cfg), name)


def max_kept(cfg: Any) -> int:
    """Return the size up to which a head is kept, in bytes."""
    hooks = [cfg.settings[name] for name in ("pre_request", "post_request")]
    if any(hook.get() is not hook.default for hook in hooks):
        return 0  # Hooks of the operator may change the request object.
    limits = cfg.limit_request_line, cfg.limit_request_field_size
    return min([_MAX_KEPT, *filter(None, limits)])


def parse(cfg: Any, client: Client, size: int, most: int) -> None:
    """Parse the head that has arrived, and keep gunicorn's request object in the client.

    :param size: the size of the head in bytes.
    :param most: the size up to which it is kept for the next requests.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    client.requests, client.head_size = client.requests + 1, size
    data = bytes(client.data[:size])
    lines = data[:-4].split(b"\r\n")
    head = client.heads.get(len(lines))
    if head is None or size > head.size or not _is_parsed(cfg, head, lines):
        head = Head(_parse(cfg, client, data), lines, size)
        _keep(client.heads, head, most)
    client.head, client.request, client.fields = head, head.request, dict(head.request.headers)


def _keep(heads: dict[int, Head], head: Head, most: int) -> None:
    """Keep a head instead of the one with as many lines. If all take too much memory, keep none."""
    heads.pop(len(head.lines), None)
    if head.size <= most and _is_plain(head):
        heads[len(head.lines)] = head
        # As measured, in bytes: for each head, for each of its lines, and for each of its bytes.
        if sum(3000 + 330 * lines + 4 * it.size for lines, it in heads.items()) > _MAX_MEMORY:
            heads.clear()


def _is_parsed(cfg: Any, head: Head, lines: list[bytes]) -> bool:
    """Take the lines that differ from those of a head, if this is enough."""
    for place, line in enumerate(lines):
        if line != head.lines[place] and not _take(cfg, head, place, line):
            return False
    head.lines = lines
    return True


def _take_first(head: Head, line: bytes) -> bool:
    """Take the request line if it has the same version of HTTP, and is valid."""
    request, environ = head.request, head.environ
    if line[-9:] != head.lines[0][-9:] or environ["SCRIPT_NAME"]:
        return False
    try:
        request.parse_request_line(line)
    except Exception:  # noqa: BLE001  # It is parsed again with the rest, and then refused.
        return False
    environ["REQUEST_METHOD"], environ["RAW_URI"] = request.method, request.uri
    environ["PATH_INFO"] = unquote_to_wsgi_str(request.path)
    environ["QUERY_STRING"] = request.query
    return True


def _take(cfg: Any, head: Head, place: int, line: bytes) -> bool:
    """Take a line if gunicorn would use its value as it is, and only for one variable."""
    if not place:
        return _take_first(head, line)
    name, last = head.request.headers[place - 1]
    start = head.lines[place].partition(b":")[0] + b":"
    value = str(line[len(start) :], "latin-1").strip(" ")
    is_used = name in _USED or name in cfg.secure_scheme_headers
    if is_used or not (line.startswith(start) and value.isascii() and value.isprintable()):
        return False
    if name == "CONTENT-LENGTH" and not (value.isdecimal() and len(value) < 19):
        return False
    head.request.headers[place - 1] = name, value
    prefix = "" if name in {"CONTENT-LENGTH", "CONTENT-TYPE"} else "HTTP_"
    variable = prefix + name.replace("-", "_")
    if head.environ[variable] != last:  # It has the values of several lines.
        value = ",".join(value for other, value in head.request.headers if other == name)
    head.environ[variable] = value
    return True


def _is_plain(head: Head) -> bool:
    """Return whether each line after the first one is one field, which can be replaced alone."""
    names = [name for name, _ in head.request.headers if "_" not in name]
    # To read a chunked body changes the request. Of several content types, the last one is used.
    is_plain = "TRANSFER-ENCODING" not in names and names.count("CONTENT-TYPE") < 2
    return is_plain and len(names) == len(head.lines) - 1


def environ_of(worker: Any, client: Client) -> dict[str, Any]:
    """Return the environ of the request of a client.

    :raises RefusedRequest: if its path does not begin with the variable ``SCRIPT_NAME``.
    """
    head = client.head
    if not head.environ:
        try:
            _, environ = create(client.request, client, client.address, client.server, worker.cfg)
        except ConfigurationProblem:
            raise RefusedRequest(40401, "There is nothing at this path.") from None
        for name in ("gunicorn.socket", "wsgi.early_hints"):  # No application may use the socket.
            environ.pop(name, None)
        own = {"wsgi.errors": _Errors(worker.cfg), "wsgi.multithread": worker.needs_threads}
        head.environ = environ | own
    return head.environ | {"wsgi.input": client.body}


def _parse(cfg: Any, client: Client, head: bytes) -> Any:
    try:
        request = Request(cfg, IterUnreader([head]), client.address, client.requests)
    except (NoMoreData, ValueError):  # int() refuses some values, such as 5,000 digits.
        raise RefusedRequest(40000, "The request is not valid HTTP.") from None
    if client.requests == 1 and (request.proxy_protocol_info or {}).get("client_addr"):
        client.proxied = request.proxy_protocol_info
    request.proxy_protocol_info = client.proxied
    request._expected_100_continue = False  # noqa: SLF001  # The worker has sent the status 100.
    hosts = [name for name, _ in request.headers].count("HOST")
    if hosts > 1 or not hosts and request.version > (1, 0):  # RFC 9112 section 3.2.
        raise RefusedRequest(40000, "There must be one Host header.")
    if request.version not in {(1, 0), (1, 1)}:  # gunicorn's parser in C does so, too.
        raise RefusedRequest(40000, "The version of HTTP must be 1.0 or 1.1.")
    options = ",".join(value for name, value in request.headers if name == "CONNECTION")
    if "close" in re.split("[ \t,]+", options.lower()):
        request.force_close()
    return request
