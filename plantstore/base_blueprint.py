"""The base class of the blueprints: what happens before each operation."""

from collections.abc import Callable, Collection
from http import HTTPMethod
from typing import Any, cast

from flask import Blueprint, Response, current_app, g, request
from flask.sansio.blueprints import BlueprintSetupState
from werkzeug.exceptions import HTTPException
from werkzeug.local import LocalProxy
from werkzeug.routing import MapAdapter, RequestRedirect

from .auth import Client, VerifyToken, authenticate
from .errors import ERRORS, ErrorResponse, Refused, handle_errors
from .responses import OperationResponse, request_id
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
    :param verify_token: returns a token's client. By default, no token is needed.
    :param store: the store of the operations. If only one process can access it, several processes
        do not serve it (50302). By default, there is none.
    :raises TypeError: if the name is not a string.
    """

    #: APIFlask expects this attribute in every blueprint that has hooks.
    enable_openapi: bool = False

    def __init__(
        self,
        name: str,
        import_name: str,
        *,
        verify_token: VerifyToken | None = None,
        store: Store | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise type_error("name", "a string", name)
        super().__init__(name, import_name)
        self._verify_token = verify_token
        self._store = store
        self._purposes: dict[str, tuple[str, str]] = {}  # By the name of the view.
        self._first = ""  # The first segment of a path that has an operation.
        handle_errors(self)
        self.url_defaults(self._set_path)
        self.before_request(self._begin)

    def _begin(self) -> Response | None:
        """Check the credentials before anything else is read (interface section 5)."""
        environ = request.environ
        request_id(environ)
        if environ["REQUEST_METHOD"] == "OPTIONS":
            # The preflight request of a browser has no credentials.
            return OperationResponse(headers=[("Allow", _allow())])
        if self._verify_token is not None:
            authorization = environ.get("HTTP_AUTHORIZATION")
            client = authenticate(authorization, self._verify_token)
            name = client.name if isinstance(client, Client) else client
            environ["plantstore.client"] = g.plantstore_client = name  # The server logs it.
            if isinstance(client, Client) and client.operations is not None:
                self._check_right(client.operations)
        if self._store is not None and self._store.one_process and environ["wsgi.multiprocess"]:
            raise Refused(50302)
        return None

    def add_operation(
        self, name: str, purpose: str, method: str, rule: str, view: Callable[..., Response]
    ) -> None:
        """Add a view to which a token needs the right.

        :param name: the name of the operation, as in :class:`.auth.Client`.
        :param purpose: what a client does with it, such as ``delete plants``.
        :param method: its method.
        :param rule: its path.
        :param view: the view. Its name is the endpoint.
        """
        self._purposes[view.__name__] = name, purpose
        self.add_url_rule(rule, view_func=view, methods=[method])

    def _check_right(self, operations: Collection[str]) -> None:
        """Refuse an operation that is not among those to which a token has the right."""
        view = str(request.endpoint).rpartition(".")[2]
        if view in self._purposes:  # Otherwise the path has no operation for the method.
            name, purpose = self._purposes[view]
            if name not in operations:
                raise Refused(40301, f"This token does not have the right to {purpose}.")

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
        segments: dict[str, list[str]] = {}  # The first segments of the paths, by their rest.
        for path in sorted(paths):
            first, slash, rest = path[1:].partition("/")
            segments.setdefault(slash + rest, []).append(first)
        for rest, firsts in segments.items():
            # werkzeug tries a rule with a converter after an operation or a page of the site.
            other = f"/<any({', '.join(firsts)}):plantstore_path>{rest}"
            state.add_url_rule(other, _OTHER, refuse_method, methods=["OPTIONS"])
            self._first = firsts[0]
        for rule in state.app.url_map.iter_rules(f"{name}.{_OTHER}"):
            rule.methods = _EveryMethod(["OPTIONS"])

    def _set_path(self, endpoint: str, values: dict[str, Any]) -> None:
        """Let a site build a URL for every rule that it has, for example for a site map."""
        if endpoint.rpartition(".")[2] == _OTHER:
            values["plantstore_path"] = self._first


class _EveryMethod(set[str]):
    """The methods of a rule that matches all methods of HTTP, but lists only these."""

    def __contains__(self, method: object) -> bool:
        return method in HTTPMethod.__members__


def refuse_method(**_: Any) -> ErrorResponse:
    """Return the Error for a method that the requested path has no operation for."""
    allow = _allow()
    message = f"{ERRORS[40501][0]} The path has only the methods {allow}."
    return ErrorResponse(40501, message, [("Allow", allow)])


def _allow() -> str:
    """Return the methods of the requested path, also those of a page of the site."""
    adapter = cast(MapAdapter, current_app.create_url_adapter(request))
    served = {method for method in adapter.allowed_methods() if _is_served(adapter, method)}
    return ", ".join(sorted({"OPTIONS"} | served))


def _is_served(adapter: MapAdapter, method: str) -> bool:
    try:
        rule, _ = adapter.match(method=method, return_rule=True)
    except HTTPException as error:
        return isinstance(error, RequestRedirect)
    return not rule.endpoint.endswith(f".{_OTHER}")


def check_store(store: object) -> None:
    """Check an argument ``store``: a Store, or a proxy whose store is known only in a request.

    :param store: the argument.
    :raises TypeError: for anything else.
    """
    if not isinstance(store, LocalProxy | Store):
        raise type_error("store", "a Store, such as MemoryStore() or open_store(url)", store)
