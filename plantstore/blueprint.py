"""The operations of the plant store, as a blueprint for any Flask site."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from flask import Blueprint, Request, Response, current_app, g, request
from flask.sansio.blueprints import BlueprintSetupState
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException, InternalServerError, default_exceptions

from .auth import VerifyToken, authenticate
from .body import DEFAULT_MAX_BODY, read_body
from .errors import ALLOW, ERRORS, Refused, answer, answer_for_site, describe_faults
from .responses import JSONResponse
from .schemas import new_plant_schema, plant_schema
from .signals import announce
from .stores.base import Plant, PlantExists, Store, StoreUnavailable

T = TypeVar("T")
REFUSALS = (Refused, PlantExists, StoreUnavailable)


def create_blueprint(
    *,
    store: Store,
    verify_token: VerifyToken,
    max_body: int = DEFAULT_MAX_BODY,
    name: str = "plantstore",
) -> Blueprint:
    """Return a blueprint that serves a store: ``POST /plants`` below its prefix.

    ``verify_token`` turns a bearer token into its client's name, then found in
    ``g.plantstore_client``, or into ``None`` for "not accepted". ``max_body`` is the
    largest request body in bytes. Several may share a site, each under its own ``name``.
    """
    blueprint = Blueprint(name, __name__)
    # APIFlask asks this of any blueprint that has hooks, and stumbles where there is no answer.
    blueprint.enable_openapi = False  # type: ignore[attr-defined]

    @blueprint.before_request
    @_answering
    def admit() -> Response | None:
        """Find out who it is before anything else is read (interface section 5)."""
        environ = _request().environ
        # A browser asks by OPTIONS, without credentials, whether it may send them.
        if environ["REQUEST_METHOD"] == "OPTIONS":
            return Response(headers=ALLOW)
        g.plantstore_client = authenticate(environ.get("HTTP_AUTHORIZATION"), verify_token)
        return None

    @blueprint.post("/plants")
    @_answering
    def create_plant(**_: Any) -> Response:
        """Create a new plant in the store (interface section 4)."""
        incoming = _request()
        if store.one_process and incoming.environ["wsgi.multiprocess"]:
            raise Refused(50302)
        loaded = _load(read_body(incoming, max_body))
        plant = Plant(**loaded)
        store.add(plant)
        announce(plant)
        return JSONResponse(plant_schema.dump(loaded))

    # A converter, since routing prefers plain paths: whatever the site itself has there
    # comes first, and nobody takes this for a page.
    @blueprint.route("/<any(plants):path>")
    def no_operation(**_: Any) -> Response:
        """Answer any other method."""
        return answer(40501)

    blueprint.record(_match_every_method)
    _handle_errors(blueprint)
    return blueprint


def _answering(view: Callable[..., T]) -> Callable[..., T | Response]:
    """Answer what a view refuses at once, without the time of Flask's search for a handler."""

    @wraps(view)
    def answered(**arguments: Any) -> T | Response:
        try:
            return view(**arguments)
        except REFUSALS as error:
            return _refuse(error)

    return answered


def _request() -> Request:
    """Return the request itself: each look through the proxy costs time."""
    current: Request = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
    return current


def _load(body: bytes) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = new_plant_schema.loads(body)
    except ValidationError as error:
        raise Refused(40003, describe_faults(error)) from None
    except ValueError:
        raise Refused(40002) from None
    return loaded


class _EveryMethod(set[str]):
    """What ``rule.methods`` is for a rule that matches any method.

    werkzeug's own value for that is ``None``, on which a site that lists its routes
    would stumble.
    """

    def __contains__(self, method: object) -> bool:
        return True


def _match_every_method(state: BlueprintSetupState) -> None:
    endpoint = f"{state.name_prefix}.{state.name}.no_operation".lstrip(".")
    for rule in state.app.url_map.iter_rules(endpoint):
        rule.methods = _EveryMethod()


def _handle_errors(blueprint: Blueprint) -> None:
    handle = blueprint.register_error_handler
    for refusal in REFUSALS:  # Raised by hooks of the site's.
        handle(refusal, _refuse)
    handle(HTTPException, answer_for_site)
    for status in default_exceptions:  # Where the site's own handlers would come first.
        handle(status, answer_for_site)
    # Not Exception, which would hide our faults from a developer in debug mode.
    handle(InternalServerError, _failed)


def _refuse(error: Exception) -> Response:
    if isinstance(error, PlantExists):
        return answer(40004)
    if isinstance(error, Refused):
        if error.number >= 50000:
            _log(f"{error.number}: {ERRORS[error.number][0]}")
        return answer(error.number, error.message)
    _log(f"The store is unavailable: {error!r}")
    return answer(50301)


def _failed(error: InternalServerError) -> Response:
    _log("50001: the service failed")
    return answer(50001)


def _log(message: str) -> None:
    current_app.logger.error("%s (client: %r)", message, g.get("plantstore_client"))
