"""The operations of the plant store, as a blueprint for any Flask site."""

from collections.abc import Callable, Collection
from types import MethodType
from typing import NamedTuple

from flask import Response

from .auth import VerifyToken, check_verify_token
from .base_blueprint import OperationsBlueprint, check_store
from .body import DEFAULT_MAX_BODY
from .stores.base import Store
from .text import type_error
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


#: The operations by name. The parameter of a rule is not named ``id``, because the URL prefix of a
#: site may have one of that name.
OPERATIONS: dict[str, Operation] = {
    "create": Operation("POST", "/plants", Views.create_plant),
    "read": Operation("GET", "/plants/<plantstore_id>", Views.read_plant),
    "list": Operation("GET", "/plants", Views.list_plants),
    "delete": Operation("DELETE", "/plants/<plantstore_id>", Views.delete_plant),
}


def check_operations(names: Collection[str]) -> None:
    """Check the names of the operations to serve.

    :raises ValueError: if there is no name, or an unknown one. The message does not show it.
    """
    known = [*OPERATIONS]
    if not names or any(name not in known for name in names):
        raise ValueError(f"must have one or more of {', '.join(known)}, and nothing else")


def create_blueprint(
    *,
    store: Store,
    verify_token: VerifyToken,
    max_body: int = DEFAULT_MAX_BODY,
    name: str = "plantstore",
    operations: Collection[str] = ("create",),
) -> OperationsBlueprint:
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
    :param operations: the names of the operations: ``create``, ``read``, ``list``, ``delete``. By
        default, there is only ``create``, the operation of interface 1.0.0.
    :returns: the blueprint, for :meth:`flask.Flask.register_blueprint`.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``max_body`` is less than 1, if ``name`` is empty or has a dot, or if
        ``operations`` has no name or an unknown one.
    """
    check_store(store)
    check_verify_token(verify_token)
    _check_max_body(max_body)
    _check_operations(operations)
    blueprint = OperationsBlueprint(name, __name__, verify_token=verify_token, store=store)
    views = Views(store, max_body)
    for operation, (method, rule, view) in OPERATIONS.items():
        if operation in operations:
            purpose = f"{operation} plants"
            blueprint.add_operation(operation, purpose, method, rule, MethodType(view, views))
    blueprint.record(blueprint.add_other_methods)
    return blueprint


def _check_max_body(max_body: int) -> None:
    if type(max_body) is not int:
        raise type_error("max_body", "an int, a number of bytes", max_body)
    if max_body < 1:
        raise ValueError("max_body must be at least 1 byte")


def _check_operations(operations: Collection[str]) -> None:
    if isinstance(operations, str) or not isinstance(operations, Collection):
        expected = 'a collection of names, such as ["create", "read"]'
        raise type_error("operations", expected, operations)
    try:
        check_operations(operations)
    except ValueError as error:
        raise ValueError(f"operations {error}") from None
