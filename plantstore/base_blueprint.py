"""The base class of the blueprints: their Errors, their log, and the methods of each path."""

from collections.abc import Iterator
from http import HTTPMethod
from typing import Any, cast

from flask import Blueprint, Response, current_app, request
from flask.sansio.blueprints import BlueprintSetupState
from werkzeug.local import LocalProxy
from werkzeug.routing import MapAdapter, Rule

from .errors import ERRORS, error_response, handle_errors
from .request_log import finish, request_id
from .stores.base import Store
from .text import type_error

# The endpoint of the methods that a path has no operation for.
_OTHER = "other_methods"


class OperationsBlueprint(Blueprint):
    """A blueprint whose views are operations. Its errors are Errors, and it logs them.

    On each path of an operation, it refuses every other method with 40501, and responds to OPTIONS
    without credentials.

    :param name: the name of the blueprint.
    :param import_name: the name of the module that creates it.
    :raises TypeError: if the name is not a string.
    """

    #: APIFlask expects this attribute in every blueprint that has hooks.
    enable_openapi: bool = False

    def __init__(self, name: str, import_name: str) -> None:
        if not isinstance(name, str):
            raise type_error("name", "a string", name)
        super().__init__(name, import_name)
        self._paths: dict[str, str] = {}  # The rules of the operations, by every rule of a path.
        handle_errors(self)
        self.before_request(self._begin)
        self.after_request(finish)

    def allow_header(self) -> tuple[str, str]:
        """Return the header ``Allow`` of the requested path (RFC 9110 section 10.2.1).

        It names the operations of all blueprints with the same URL prefix.
        """
        rule = request.url_rule
        if rule is None:  # The method is not one that HTTP defines, and matches no rule.
            adapter = cast(MapAdapter, current_app.create_url_adapter(request))
            rule, _ = adapter.match(method="OPTIONS", return_rule=True)
        path = self._paths[rule.rule]
        methods = {"OPTIONS"}
        for operation in operation_rules(rule):
            if operation.rule == path:
                methods |= operation.methods or set()
        return "Allow", ", ".join(sorted(methods))

    def add_other_methods(self, state: BlueprintSetupState) -> None:
        """Add a rule for the other methods to each path that has an operation.

        A page that the site has at the same path keeps its methods.

        :param state: a registration of this blueprint.
        """
        name = f"{state.name_prefix}.{state.name}".lstrip(".")
        prefix = (state.url_prefix or "").rstrip("/")
        paths = set()
        for rule in state.app.url_map.iter_rules():
            blueprint, _, endpoint = rule.endpoint.rpartition(".")
            if blueprint == name and endpoint != _OTHER and rule.rule.startswith(f"{prefix}/"):
                paths.add(rule.rule.removeprefix(prefix))
        for path in sorted(paths):
            # werkzeug tries a rule with a converter after an operation or a page of the site.
            _, first, *rest = path.split("/")
            other = "/".join(["", f"<any({first}):plantstore_path>", *rest])
            state.add_url_rule(other, _OTHER, self.refuse_method, methods=[*HTTPMethod])
            self._paths[prefix + path] = self._paths[prefix + other] = prefix + path

    def _begin(self) -> Response | None:
        request_id()
        # The preflight request of a browser has no credentials.
        return Response(headers=[self.allow_header()]) if request.method == "OPTIONS" else None

    def refuse_method(self, **_: Any) -> Response:
        """Return the Error for a method that the requested path has no operation for."""
        header = self.allow_header()
        message = f"{ERRORS[40501][0]} The path has only the methods {header[1]}."
        return error_response(40501, message, [header])


def operation_rules(other: Rule) -> Iterator[Rule]:
    """Yield the rules of all operations of the site that have the host of another rule."""
    for rule in current_app.url_map.iter_rules():
        blueprint, _, endpoint = rule.endpoint.rpartition(".")
        is_operation = isinstance(current_app.blueprints.get(blueprint), OperationsBlueprint)
        same_host = (rule.host, rule.subdomain) == (other.host, other.subdomain)
        if is_operation and endpoint != _OTHER and same_host:
            yield rule


def check_store(store: object) -> None:
    """Check an argument ``store``: a Store, or a proxy whose store is known only in a request.

    :param store: the argument.
    :raises TypeError: for anything else.
    """
    if not isinstance(store, LocalProxy | Store):
        raise type_error("store", "a Store, such as MemoryStore() or open_store(url)", store)
