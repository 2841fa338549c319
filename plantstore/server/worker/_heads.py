"""The head of a request. gunicorn parses it, and makes the environ (PEP 3333) from it.

Most clients send the same head with each request of a connection, except for the digits of its
Content-Length. The worker keeps the request object and the environ of the last head, and uses them
for the next one. Without this, a served create would take 15 % longer.
"""

import re
from typing import Any

from gunicorn.http.errors import ConfigurationProblem, NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.http.wsgi import WSGIErrorsWrapper, create

from ._client import Client
from ._refusals import RefusedRequest

# The digits of a Content-Length.
_LENGTH = re.compile(rb"\r\n(?i:content-length):[ \t]*([0-9]{1,18})(?=\r\n[^ \t])")
# The maximum size of a head that is kept, in bytes. What is kept takes ten times as much memory.
_MAX_KEPT = 2048


def parse(cfg: Any, client: Client, size: int) -> None:
    """Parse the head that has arrived, and keep gunicorn's request object in the client.

    :param cfg: the configuration of gunicorn.
    :param size: the size of the head in bytes.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    client.requests, client.head_size = client.requests + 1, size
    head = bytes(client.data[:size])
    digits = _LENGTH.search(head)
    start, end = digits.span(1) if digits else (size, size)
    parts = head[:start], head[end:]
    if parts != client.parts:
        client.parsed, client.environ = _parse(cfg, client, head), {}
        client.parts = parts if _can_be_kept(cfg, client.parsed, head) else None
    elif digits:
        new = {"CONTENT-LENGTH": head[start:end].decode()}
        headers = client.parsed.headers
        client.parsed.headers = [(name, new.get(name, value)) for name, value in headers]
    client.request, client.fields = client.parsed, dict(client.parsed.headers)


def _can_be_kept(cfg: Any, request: Any, head: bytes) -> bool:
    # Hooks of the operator may change the request object. Reading a chunked body changes it.
    hooks = (cfg.settings[name] for name in ("pre_request", "post_request"))
    has_hook = any(hook.get() is not hook.default for hook in hooks)
    is_chunked = any(name == "TRANSFER-ENCODING" for name, _ in request.headers)
    is_first = head.startswith(b"PROXY ")  # Only gunicorn's parser refuses it the second time.
    return len(head) <= _MAX_KEPT and not (has_hook or is_chunked or is_first)


def environ_of(worker: Any, client: Client) -> dict[str, Any]:
    """Return the environ of the request of a client.

    :raises RefusedRequest: if its path does not begin with the variable ``SCRIPT_NAME``.
    """
    if not client.environ:
        client.environ = _make_environ(worker, client)
    of_this = {"wsgi.input": client.body, "wsgi.errors": WSGIErrorsWrapper(worker.cfg)}
    if "CONTENT-LENGTH" in client.fields:
        of_this["CONTENT_LENGTH"] = client.fields["CONTENT-LENGTH"]
    return client.environ | of_this


def _make_environ(worker: Any, client: Client) -> dict[str, Any]:
    environ: dict[str, Any]
    try:
        _, environ = create(client.request, client, client.address, client.server, worker.cfg)
    except ConfigurationProblem:
        raise RefusedRequest(40401, "There is nothing at this path.") from None
    for name in ("gunicorn.socket", "wsgi.early_hints"):  # Applications must not use the socket.
        environ.pop(name, None)
    environ["wsgi.multithread"] = worker.needs_threads
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
