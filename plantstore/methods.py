"""The methods of HTTP that a path has no operation for."""

from collections import defaultdict
from http import HTTPMethod
from typing import Any, cast

from flask import Blueprint, Response, current_app, request
from flask.sansio.blueprints import BlueprintSetupState
from werkzeug.routing import MapAdapter

from .errors import ERRORS, error_response


class OperationsBlueprint(Blueprint):
    """A blueprint whose views are operations on ``/plants`` and on paths below it.

    On each path of an operation, it refuses every other method with 40501.

    :param name: the name of the blueprint.
    :param import_name: the name of the module that creates it.
    """

    #: APIFlask expects this attribute in every blueprint that has hooks.
    enable_openapi: bool = False

    def __init__(self, name: str, import_name: str) -> None:
        super().__init__(name, import_name)
        self._allow: dict[str, str] = {}  # The values of the header, by the rule of a path.

    def allow_header(self) -> tuple[str, str]:
        """Return the header ``Allow`` of the requested path (RFC 9110 section 10.2.1)."""
        rule = request.url_rule
        if rule is None:  # The method is not one that HTTP defines, and matches no rule.
            adapter = cast(MapAdapter, current_app.create_url_adapter(request))
            rule, _ = adapter.match(method="OPTIONS", return_rule=True)
        return "Allow", self._allow[rule.rule]

    def add_other_methods(self, state: BlueprintSetupState) -> None:
        """Add a rule for the other methods to each path that has an operation.

        A page that the site has at the same path keeps its methods.

        :param state: a registration of this blueprint.
        """
        name = f"{state.name_prefix}.{state.name}".lstrip(".")
        prefix = (state.url_prefix or "").rstrip("/")
        start = f"{prefix}/plants"
        operations: dict[str, set[str]] = defaultdict(set)
        for rule in state.app.url_map.iter_rules():
            if rule.endpoint.rpartition(".")[0] == name and rule.rule.startswith(start):
                operations[rule.rule.removeprefix(start)] |= rule.methods or set()
        for path, methods in operations.items():
            # werkzeug tries a rule with a converter after an operation or a page of the site.
            other = f"/<any(plants):plantstore_path>{path}"
            state.add_url_rule(other, "other_methods", self.refuse_method, methods=[*HTTPMethod])
            allowed = ", ".join(sorted(methods | {"OPTIONS"}))
            self._allow[start + path] = self._allow[prefix + other] = allowed

    def refuse_method(self, **_: Any) -> Response:
        """Return the Error for a method that the requested path has no operation for."""
        header = self.allow_header()
        message = f"{ERRORS[40501][0]} The path has only the methods {header[1]}."
        return error_response(40501, message, [header])
