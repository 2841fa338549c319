"""Answers in JSON, whatever JSON provider the site has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
from flask import Response
from werkzeug.datastructures import Headers

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


BODILESS = {*range(100, 200), 204, 304}


class JSONResponse(Response):
    """An answer in JSON, with its headers complete from the start."""

    def __init__(
        self, data: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        body = orjson.dumps(data)
        super().__init__([body], status, headers, content_type="application/json")
        self.headers["Content-Length"] = str(len(body))

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        """Return the headers as they are: nothing in them depends on the request.

        werkzeug would copy them first, and look for a Location to complete.
        """
        return self.headers

    def get_app_iter(self, environ: "WSGIEnvironment") -> Iterable[bytes]:
        """Return what the WSGI server iterates over and then closes: this answer itself.

        werkzeug would wrap its body in two iterators first.
        """
        bodiless = environ["REQUEST_METHOD"] == "HEAD" or self.status_code in BODILESS
        return super().get_app_iter(environ) if bodiless else self

    __iter__ = Response.iter_encoded
