"""The responses of the service, and the id of the request that each of them has."""

import re
import secrets
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from json import JSONEncoder
from os import getpid
from typing import Any

from flask import Response, request
from werkzeug.wsgi import ClosingIterator

# The key in the WSGI environment of the id of the request, also if the site has set it.
_ID = "plantstore.request_id"
# The key in the WSGI environment of an id that the site has not set.
_OWN_ID = "plantstore.own_request_id"
# The ids that are accepted. They can be in a log and in a header as they are.
_ACCEPTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:@-]{0,127}")
# The numbers of the requests of this process.
_numbers = count(1)

# An access through the proxy itself would take longer.
_proxy: Any = request

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def request_id(environ: dict[str, Any]) -> str:
    """Return the id of a request, which is also in ``environ["plantstore.request_id"]``.

    The site may set it there. Otherwise, it is that of the header X-Request-ID if this has at most
    128 characters, all of them ASCII letters, digits or ``._~+/=:@-``, and begins with a letter or
    digit. Otherwise, it is unique.
    """
    if _ID not in environ:
        given = environ.get("HTTP_X_REQUEST_ID")
        is_accepted = given is not None and _ACCEPTED.fullmatch(given) is not None
        new = given if is_accepted else f"{_process_name(getpid())}-{next(_numbers)}"
        environ[_ID] = environ[_OWN_ID] = new
    id: str = environ[_ID]
    return id


@cache
def _process_name(pid: int) -> str:
    """Return a random name of this process. A process that it forks has another one."""
    return secrets.token_hex(8)


def dump_json(data: Any) -> bytes:
    """Return dicts, lists, strings and numbers as JSON in UTF-8, without white space."""
    return _encode(data).encode()


class ServiceResponse(Response):
    """A response to the current request, with the id of the request in its header X-Request-ID.

    If the site has an id of its own, there is no such header; if the site sets the header, its
    value is sent. The header is set at once, because Flask changes the class of a response if the
    site has a response class of its own. An ``after_request`` function of the site may change the
    response in any way. It is then sent as changed, with the right Content-Length.

    :param body: the body, which is empty if the status is 204 or 304.
    :param status: the HTTP status, by default 200.
    :param headers: additional headers, as pairs of name and value. By default there are none.
    :param content_type: the type of the body, by default JSON.
    """

    #: The number of the Error, if it is one.
    number: int | None = None

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
        content_type: str = "application/json",
    ) -> None:
        super().__init__([body], status, headers, content_type=content_type)
        for name, value in id_header(_proxy._get_current_object().environ):  # noqa: SLF001
            self.headers.add(name, value)
        if status in (204, 304):  # There is no body.
            del self.headers["Content-Type"]
        else:
            # werkzeug would first look for an earlier one: 1.5 % of a create in the process.
            self.headers.add("Content-Length", str(len(body)))
        self._body = body
        self._made = [body], self.status, [*self.headers]

    def get_wsgi_response(
        self, environ: dict[str, Any]
    ) -> tuple[Iterable[bytes], str, list[tuple[str, str]]]:
        """Return the body, the status and the headers to send.

        werkzeug corrects headers, such as the Content-Length of a 204, and wraps the body in two
        iterators. A response that is sent as it was made needs neither: it is its own iterator.
        """
        # By werkzeug's own function alone, a create takes 1.14 times as long in the process: about
        # 6 % of a served create.
        headers = [*self.headers]
        if (self.response, self.status, headers) == self._made:
            is_head = environ["REQUEST_METHOD"] == "HEAD"
            return ClosingIterator((), self.close) if is_head else self, self.status, headers
        # The Content-Length may be outdated. For a list, werkzeug sets it again.
        if self.is_sequence or self.content_length == len(self._body):
            self.headers.pop("Content-Length", None)
        return super().get_wsgi_response(environ)

    def __iter__(self) -> Iterator[bytes]:
        return self.iter_encoded()


def json_response(
    data: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()
) -> ServiceResponse:
    """Return dicts, lists, strings and numbers as JSON, without the JSON provider of the site."""
    return ServiceResponse(dump_json(data), status, headers)


def id_header(environ: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the header with the id of a request, unless the site has set the id."""
    request_id(environ)  # It may not have one yet.
    id = environ.get(_OWN_ID)
    return [] if id is None else [("X-Request-ID", id)]
