"""The error handlers of a blueprint. They do not apply to the other pages of a site."""

from flask import Blueprint, Response
from werkzeug.exceptions import HTTPException, InternalServerError, default_exceptions

from .errors import Refused, error_response, site_error_response
from .stores.base import PlantExists, StoreMisconfigured, StoreUnavailable


def handle_errors(blueprint: Blueprint) -> None:
    """Respond with an Error to each exception in a view or a hook of a blueprint."""
    handle = blueprint.register_error_handler
    handle(Refused, _refused)
    handle(PlantExists, lambda error: error_response(40004))
    handle(StoreUnavailable, _store_unavailable)
    handle(StoreMisconfigured, store_misconfigured)
    handle(HTTPException, site_error_response)
    # Flask prefers the site's handler for a status to the blueprint's handler for HTTPException.
    for status in default_exceptions:
        handle(status, site_error_response)
    # A handler for Exception would hide the traceback from a developer in debug mode.
    handle(InternalServerError, service_failed)


def service_failed(error: InternalServerError) -> Response:
    """Return the Error for an exception that nothing else handles."""
    fault = error.original_exception or error
    return error_response(50001, reason="The service failed.", fault=fault)


def store_misconfigured(error: StoreMisconfigured) -> Response:
    """Return the Error for a store that is not set up for plants."""
    reason = f"The store is not set up for plants: {' '.join(str(error).split())}"
    return error_response(50303, reason=reason, fault=_without_cause(error))


def _store_unavailable(error: StoreUnavailable) -> Response:
    reason = f"The store is unavailable: {error!r}"
    return error_response(50301, reason=reason, fault=_without_cause(error))


def _refused(error: Refused) -> Response:
    fault = error if error.number >= 50000 else None
    return error_response(error.number, error.message, reason=error.reason, fault=fault)


def _without_cause(error: Exception) -> Exception:
    # The cause is an error of a driver, whose text may have the values of a plant.
    error.__cause__, error.__suppress_context__ = None, True
    return error
