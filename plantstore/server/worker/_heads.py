"""The head of a request. gunicorn parses it, and makes the environ (PEP 3333) from it.

The heads of a connection mostly differ in a few lines: an id, the client of a proxy, the length of
the body. The worker keeps the request object and the environ of the last head, and takes only the
lines that differ. Without this, a create through a proxy would take 40 % longer.
"""

import re
from typing import Any

from gunicorn.http.errors import ConfigurationProblem, NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.http.wsgi import WSGIErrorsWrapper, create
from gunicorn.util import unquote_to_wsgi_str

from ._client import Client
from ._refusals import RefusedRequest

# The maximum size of a head that is kept, in bytes. What is kept takes ten times as much memory.
_MAX_KEPT = 2048
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
    """Return the size up to which heads are kept, in bytes."""
    hooks = [cfg.settings[name] for name in ("pre_request", "post_request")]
    if any(hook.get() is not hook.default for hook in hooks):
        return 0  # Hooks of the operator may change the request object.
    limits = cfg.limit_request_line, cfg.limit_request_field_size
    return min(_MAX_KEPT, *filter(None, limits))


def parse(cfg: Any, client: Client, size: int, most: int) -> None:
    """Parse the head that has arrived, and keep gunicorn's request object in the client.

    :param cfg: the configuration of gunicorn.
    :param size: the size of the head in bytes.
    :param most: the size up to which it is kept for the next request.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    client.requests, client.head_size = client.requests + 1, size
    head = bytes(client.data[:size])
    lines = head[:-4].split(b"\r\n")
    is_small = size <= most
    if not (is_small and client.kept_environ and _is_parsed(cfg, client, lines)):
        client.kept_request, client.kept_environ = _parse(cfg, client, head), {}
        client.kept_lines = lines if is_small and _is_plain(client.kept_request, lines) else None
    client.request, client.fields = client.kept_request, dict(client.kept_request.headers)


def _is_parsed(cfg: Any, client: Client, lines: list[bytes]) -> bool:
    """Take the lines that differ from those of the last head, if this is enough."""
    last = client.kept_lines
    if last is None or len(lines) != len(last):
        return False
    try:
        if lines[0] != last[0] and not _parse_first(client, lines[0], last[0]):
            return False
    except Exception:  # noqa: BLE001  # It is parsed again, and refused if it is not valid.
        return False
    for place, line in enumerate(lines):
        if place and line != last[place] and not _take(cfg, client, place, line, last[place]):
            return False
    client.kept_lines = lines
    return True


def _parse_first(client: Client, line: bytes, last: bytes) -> bool:
    request, environ = client.kept_request, client.kept_environ
    if line[-9:] != last[-9:] or environ["SCRIPT_NAME"]:
        return False
    request.parse_request_line(line)
    environ["REQUEST_METHOD"], environ["RAW_URI"] = request.method, request.uri
    environ["PATH_INFO"] = unquote_to_wsgi_str(request.path)
    environ["QUERY_STRING"] = request.query
    return True


def _take(cfg: Any, client: Client, place: int, line: bytes, last: bytes) -> bool:
    """Take the value of a field if gunicorn would take it as it is, and for its variable only."""
    name, _ = client.kept_request.headers[place - 1]
    start = last[: last.index(b":") + 1]
    value = str(line[len(start) :], "latin-1").strip(" ")
    is_used = name in _USED or name in cfg.secure_scheme_headers
    if is_used or not (line.startswith(start) and value.isascii() and value.isprintable()):
        return False
    if name == "CONTENT-LENGTH" and not (value.isdecimal() and len(value) < 19):
        return False
    client.kept_request.headers[place - 1] = name, value
    prefix = "" if name in {"CONTENT-LENGTH", "CONTENT-TYPE"} else "HTTP_"
    client.kept_environ[prefix + name.replace("-", "_")] = value
    return True


def _is_plain(request: Any, lines: list[bytes]) -> bool:
    """Return whether each line after the first one is a field with a variable of its own."""
    names = {name for name, _ in request.headers if "_" not in name}
    # To read a chunked body changes the request object.
    return len(names) == len(lines) - 1 and "TRANSFER-ENCODING" not in names


def environ_of(worker: Any, client: Client) -> dict[str, Any]:
    """Return the environ of the request of a client.

    :raises RefusedRequest: if its path does not begin with the variable ``SCRIPT_NAME``.
    """
    if not client.kept_environ:
        client.kept_environ = _make_environ(worker, client)
    return client.kept_environ | {"wsgi.input": client.body}


def _make_environ(worker: Any, client: Client) -> dict[str, Any]:
    environ: dict[str, Any]
    try:
        _, environ = create(client.request, client, client.address, client.server, worker.cfg)
    except ConfigurationProblem:
        raise RefusedRequest(40401, "There is nothing at this path.") from None
    for name in ("gunicorn.socket", "wsgi.early_hints"):  # Applications must not use the socket.
        environ.pop(name, None)
    environ["wsgi.errors"], environ["wsgi.multithread"] = _Errors(worker.cfg), worker.needs_threads
    return environ


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
