"""Answers in JSON, whatever JSON provider the site has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
from flask import Response
from werkzeug.datastructures import Headers

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class JSONResponse(Response):
    """An answer in JSON, with its headers complete from the start."""

    def __init__(
        self, data: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        body = orjson.dumps(data)
        length = ("Content-Length", str(len(body)))
        super().__init__([body], status, [("Content-Type", "application/json"), length, *headers])

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        """Return the headers as they are: nothing in them depends on the request.

        werkzeug would copy them first, and look for a Location to complete.
        """
        return self.headers
