"""The methods of HTTP that a path has no operation for."""

from contextlib import suppress
from http import HTTPMethod
from typing import Any, cast

from flask import Response, current_app, request
from flask.sansio.blueprints import BlueprintSetupState
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from .errors import error_response

# The name of the endpoint that refuses the other methods.
_ENDPOINT = "other_methods"


def add_other_methods(state: BlueprintSetupState) -> None:
    """Refuse, on each path of a blueprint, every method that has no operation.

    The response is 40501. A page that the site has at the same path keeps its methods.

    :param state: the registration of a blueprint whose paths all begin with ``/plants``.
    """
    prefix = f"{state.name_prefix}.{state.name}.".lstrip(".")
    paths = {
        rule.rule.rpartition("/plants")[2]
        for rule in state.app.url_map.iter_rules()
        if rule.endpoint.startswith(prefix) and "/plants" in rule.rule
    }
    for path in sorted(paths):
        # The converter "any" makes werkzeug try this rule last: after the operations, and after
        # the pages of the site.
        rule = f"/<any(plants):plants>{path}"
        state.add_url_rule(rule, _ENDPOINT, _refuse_method, methods=[*HTTPMethod])


def allow_header() -> tuple[str, str]:
    """Return the header ``Allow`` for the path of the current request (RFC 9110 section 10.2.1)."""
    adapter = cast(MapAdapter, current_app.create_url_adapter(request))
    methods = {"OPTIONS"}
    for method in HTTPMethod:
        with suppress(HTTPException):
            endpoint, _ = adapter.match(method=method)
            if not endpoint.endswith(f".{_ENDPOINT}"):
                methods.add(method)
    return "Allow", ", ".join(sorted(methods))


def _refuse_method(**_: Any) -> Response:
    return error_response(40501, headers=[allow_header()])
