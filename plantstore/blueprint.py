"""The operation of the plant store, as a blueprint for any Flask site."""

from json import JSONDecodeError
from typing import Any

from flask import Blueprint, Response, current_app, g, request
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException, InternalServerError, default_exceptions
from werkzeug.local import LocalProxy

from .arguments import type_error
from .auth import VerifyToken, authenticate, check_verify_token
from .body import DEFAULT_MAX_BODY, read_body
from .errors import (
    Refused,
    describe_faults,
    describe_json_error,
    error_response,
    site_error_response,
)
from .methods import OperationsBlueprint
from .responses import JSONResponse
from .schemas import new_plant_schema, plant_schema
from .signals import announce
from .stores.base import Plant, PlantExists, Store, StoreMisconfigured, StoreUnavailable


def create_blueprint(
    *,
    store: Store,
    verify_token: VerifyToken,
    max_body: int = DEFAULT_MAX_BODY,
    name: str = "plantstore",
) -> OperationsBlueprint:
    """Return a blueprint with the operation ``POST /plants``.

    Registering it does not change the other pages of a site. A site may register several of
    these blueprints, each with its own name and URL prefix.

    :param store: the store that keeps the plants.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, or ``None`` if the token is not accepted. It must not be a class or a coroutine
        function. The name is then in ``g.plantstore_client``.
    :param max_body: the largest request body in bytes, by default 1 MiB.
    :param name: the name of the blueprint, by default ``plantstore``.
    :returns: the blueprint, for :meth:`flask.Flask.register_blueprint`.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``max_body`` is less than 1, or ``name`` is empty or has a dot.
    """
    check_store(store)
    check_verify_token(verify_token)
    if type(max_body) is not int:
        raise type_error("max_body", "an int, a number of bytes", max_body)
    if max_body < 1:
        raise ValueError("max_body must be at least 1 byte")
    if not isinstance(name, str):
        raise type_error("name", "a string", name)
    blueprint = OperationsBlueprint(name, __name__)
    logged: set[str] = set()  # The problems of the store that the log already has.

    @blueprint.before_request
    def check_request() -> Response | None:
        """Check the credentials before anything else is read (interface section 5)."""
        environ = request.environ
        # The preflight request of a browser has no credentials.
        if environ["REQUEST_METHOD"] == "OPTIONS":
            return Response(headers=[blueprint.allow_header()])
        g.plantstore_client = authenticate(environ.get("HTTP_AUTHORIZATION"), verify_token)
        if store.one_process and environ["wsgi.multiprocess"]:
            raise Refused(50302)
        return None

    # The URL prefix of a site may have parameters, which each view receives.
    @blueprint.post("/plants")
    def create_plant(**_: Any) -> Response:
        """Create a new plant in the store (interface section 4)."""
        new_plant = _load(read_body(request, max_body))
        plant = Plant(new_plant["id"], new_plant["name"], new_plant.get("tag"))
        store.add(plant)
        logged.clear()
        announce(plant)
        return JSONResponse(plant_schema.dump(new_plant))

    @blueprint.errorhandler(StoreMisconfigured)
    def store_misconfigured(error: StoreMisconfigured) -> Response:
        """Log a problem of the store only once until a plant is stored."""
        message = " ".join(str(error).split())
        if message not in logged:
            logged.add(message)
            _log(f"The store is not set up for plants: {message}")
        return error_response(50303)

    blueprint.record(blueprint.add_other_methods)
    _handle_errors(blueprint)
    return blueprint


def check_store(store: object) -> None:
    """Check an argument ``store``: a Store, or a proxy whose store is known only in a request.

    :param store: the argument.
    :raises TypeError: for anything else.
    """
    if not isinstance(store, LocalProxy | Store):
        raise type_error("store", "a Store, such as MemoryStore() or open_store(url)", store)


def _load(body: bytes) -> dict[str, Any]:
    try:
        new_plant: dict[str, Any] = new_plant_schema.loads(body)
    except ValidationError as error:
        raise Refused(40003, describe_faults(error)) from None
    except JSONDecodeError as error:
        raise Refused(40002, describe_json_error(error)) from None
    return new_plant


def _handle_errors(blueprint: Blueprint) -> None:
    handle = blueprint.register_error_handler
    handle(Refused, _refused)
    handle(PlantExists, lambda error: error_response(40004))
    handle(StoreUnavailable, _store_unavailable)
    handle(HTTPException, site_error_response)
    # Flask prefers the site's handler for a status to the blueprint's handler for HTTPException.
    for status in default_exceptions:
        handle(status, site_error_response)
    # A handler for Exception would hide the traceback from a developer in debug mode.
    handle(InternalServerError, _service_failed)


def _refused(error: Refused) -> Response:
    if error.number >= 50000:
        _log(str(error))
    return error_response(error.number, error.message)


def _store_unavailable(error: StoreUnavailable) -> Response:
    _log(f"The store is unavailable: {error!r}")
    return error_response(50301)


def _service_failed(error: InternalServerError) -> Response:
    _log("50001: the service failed")
    return error_response(50001)


def _log(message: str) -> None:
    current_app.logger.error("%s (client: %r)", message, g.get("plantstore_client"))
