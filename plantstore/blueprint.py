"""The operations of the plant store, as a blueprint for any Flask site."""

from collections.abc import Callable, Collection
from types import MethodType
from typing import Any, NamedTuple

from flask import Blueprint, Response, current_app, g, request

from .auth import Client, VerifyToken, authenticate, check_verify_token
from .body import DEFAULT_MAX_BODY
from .errors import ERRORS, Refused, handle_errors
from .responses import id_header, request_id
from .stores.base import Store
from .views import Views


class Operation(NamedTuple):
    """An operation: its method, its rule below the URL prefix, and its view."""

    method: str
    rule: str
    view: Callable[..., Response]

    @property
    def path(self) -> str:
        """Its path in OpenAPI, below the URL prefix."""
        return self.rule.replace("<plantstore_id>", "{id}")


#: All operations by name. A service may serve only some of them, and a token may allow only some
#: of those. The name is also the endpoint. The parameter of a rule is not named
#: ``id``, because the URL prefix of a site may have a parameter of that name.
OPERATIONS: dict[str, Operation] = {
    "create": Operation("POST", "/plants", Views.create),
    "read": Operation("GET", "/plants/<plantstore_id>", Views.read),
    "list": Operation("GET", "/plants", Views.list),
    "update": Operation("PUT", "/plants/<plantstore_id>", Views.update),
    "delete": Operation("DELETE", "/plants/<plantstore_id>", Views.delete),
}

#: What a token can allow: each operation, and ``metrics``. Each is the name of an endpoint.
RIGHTS: tuple[str, ...] = (*OPERATIONS, "metrics")
#: The message for a path that begins with two slashes.
TWO_SLASHES = f"{ERRORS[40401][0]} It begins with two slashes."


def check_operations(names: Collection[str]) -> list[str]:
    """Return the names of the operations to serve, without duplicates.

    :raises ValueError: if there is no name, or an unknown one. The message does not show it.
    """
    if not names or any(name not in [*OPERATIONS] for name in names):
        raise ValueError(f"must have one or more of {', '.join(OPERATIONS)}, and nothing else")
    return [*dict.fromkeys(names)]


def check_store(store: Store, operations: Collection[str]) -> Store:
    """Return the store if it has the methods of the operations, or raise ValueError."""
    if "update" in operations and getattr(type(store), "replace", None) is Store.replace:
        raise ValueError("this store cannot change plants: leave out the operation update")
    return store


class ServiceBlueprint(Blueprint):
    """A blueprint that checks tokens and their rights, and responds with Errors.

    :param name: the name of the blueprint.
    :param verify_token: returns a token's client. By default, no token is needed.
    :param store: the store of the operations. If only one process can access it, several processes
        do not serve it (50302). By default, there is none.
    """

    #: APIFlask expects this attribute in every blueprint that has hooks.
    enable_openapi: bool = False

    def __init__(
        self, name: str, *, verify_token: VerifyToken | None = None, store: Store | None = None
    ) -> None:
        super().__init__(name, __name__)
        self._verify_token = verify_token
        self._store = store
        handle_errors(self)
        self.before_request(self._check_request)

    def _check_request(self) -> Response | None:
        """Check the credentials before the body is read."""
        environ = request.environ
        request_id(environ)
        if environ["PATH_INFO"].startswith("//"):
            # werkzeug takes //plants for /plants. A proxy that protects /plants does not.
            raise Refused(40401, TWO_SLASHES)
        if environ["REQUEST_METHOD"] == "OPTIONS":
            # The preflight request of a browser has no credentials. With a response, Flask does not
            # call the hooks of a site, which may need a client.
            response = current_app.make_default_options_response()
            response.headers.extend(id_header(environ))
            return response
        if self._verify_token is not None:
            _identify(environ, self._verify_token)
        if self._store is not None and self._store.one_process and environ["wsgi.multiprocess"]:
            raise Refused(50302)
        return None


def _identify(environ: dict[str, Any], verify_token: VerifyToken) -> None:
    """Find out which client has sent the request, and whether its token allows the operation."""
    client = authenticate(environ.get("HTTP_AUTHORIZATION"), verify_token)
    allowed: Collection[str] | None = None
    if isinstance(client, Client):
        allowed = client.operations
        client = client.name
    environ["plantstore.client"] = g.plantstore_client = client  # For the access log.
    if allowed is not None:
        _check_right(allowed)


def _check_right(allowed: Collection[str]) -> None:
    """Refuse an operation that a token does not allow. A view of the site needs no right."""
    operation = str(request.endpoint).rpartition(".")[2]
    if operation in RIGHTS and operation not in allowed:
        message = f"This token does not have the right to {operation}."
        raise Refused(40301, message, reason=message)


def create_blueprint(
    *,
    store: Store,
    verify_token: VerifyToken,
    max_body: int = DEFAULT_MAX_BODY,
    name: str = "plantstore",
    operations: Collection[str] = ("create",),
) -> ServiceBlueprint:
    """Return a blueprint with the operations of the plant store, by default ``POST /plants``.

    Registering it does not change the other pages of a site. A site may register several of
    these blueprints, each with its own name and URL prefix.

    :param store: the store that keeps the plants.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, a :class:`Client` if the token has only some rights, or ``None`` if the token is not
        accepted. It must not be a class or a coroutine function. The name is then in
        ``g.plantstore_client``.
    :param max_body: the largest request body in bytes, by default 65,536.
    :param name: the name of the blueprint, by default ``plantstore``.
    :param operations: the names of the operations to serve, such as ``create`` and ``read``: those
        that the setting ``PLANTSTORE_OPERATIONS`` can have. By default, there is only ``create``,
        the operation of interface 1.0.0. The endpoint of an operation is its name, such as
        ``plantstore.create``.
    :returns: the blueprint, for :meth:`flask.Flask.register_blueprint`.
    :raises TypeError: if ``verify_token`` cannot be called, or is a class or a coroutine function.
    :raises ValueError: if ``max_body`` is less than 1, if ``name`` is empty or has a dot, or if
        ``operations`` has no name, an unknown one, or one that the store cannot execute.
    """
    check_verify_token(verify_token)
    if max_body < 1:
        raise ValueError("max_body must be at least 1 byte")
    try:
        operations = check_operations([*operations])
    except ValueError as error:
        raise ValueError(f"operations {error}") from None
    check_store(store, operations)
    blueprint = ServiceBlueprint(name, verify_token=verify_token, store=store)
    views = Views(store, max_body)
    for operation, (method, rule, view) in OPERATIONS.items():
        if operation in operations:
            blueprint.add_url_rule(rule, operation, MethodType(view, views), methods=[method])
    return blueprint
