"""The JSON response."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
from flask import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class JSONResponse(Response):
    """A JSON response that does not depend on the JSON provider of the site.

    Whatever an ``after_request`` function of the site changes is sent correctly.

    :param data: what is serialized: dicts, lists, strings and numbers.
    :param status: the HTTP status.
    :param headers: more headers, as pairs of name and value.
    """

    def __init__(
        self, data: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        self._body = orjson.dumps(data)
        super().__init__(self._body, status, headers, content_type="application/json")
        self._original = [self._body], self.status, self.headers.to_wsgi_list()

    def get_wsgi_response(
        self, environ: "WSGIEnvironment"
    ) -> tuple[Iterable[bytes], str, list[tuple[str, str]]]:
        """Return the body, the status and the headers to send.

        werkzeug corrects headers, such as the Content-Length of a 204, and wraps the body in two
        iterators. A response that nobody has changed needs neither.
        """
        status, headers = self.status, self.headers.to_wsgi_list()
        unchanged = (self.response, status, headers) == self._original
        if unchanged and environ["REQUEST_METHOD"] != "HEAD":
            return self, status, headers
        if self.response != [self._body] and self.content_length == len(self._body):
            del self.headers["Content-Length"]  # werkzeug sets that of the new body.
        return super().get_wsgi_response(environ)

    def __iter__(self) -> Iterator[bytes]:
        return self.iter_encoded()
