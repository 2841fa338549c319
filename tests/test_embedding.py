"""The blueprint in a host site: neither changes the other."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from apiflask import APIFlask
from flask import Flask, Response, abort, jsonify, redirect, request, session, url_for
from flask_smorest import Api
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException, TooManyRequests, default_exceptions
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from plantstore import (
    Client,
    PlantExists,
    StaticTokens,
    StoreMisconfigured,
    StoreUnavailable,
    create_app,
)
from plantstore.errors import ERRORS
from tests.support.host_sites import (
    CONFIGURATIONS,
    JSON,
    LATER,
    MAX_BODY,
    OPERATIONS,
    READER,
    REGISTRATIONS,
    REQUESTS,
    ClientView,
    PartlyUnavailableStore,
    garden,
    send,
    send_all,
    with_prefix,
)
from tests.support.responses import check_error
from tests.support.serving import ROOT
from tests.support.sites import TOKEN

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LATER.insert(0, {**JSON, "method": "GET"})
# Requests for pages of the host site.
VISITS = [
    *({"path": path} for path in ["/", "/url", "/static/hosts.py", "/fail", "/gardens"]),
    *({"path": f"/abort/{status}"} for status in (400, 401, 403, 404, 413, 418, 429, 500, 503)),
    *({"path": "/", "method": method} for method in ["POST", "OPTIONS", "HEAD", "FOO"]),
    *({"path": path, "method": "POST"} for path in ["/plants", "/garden/", "/garden/plants/"]),
    *({"path": path} for path in ["/garden", "/garden/plants/1/", "/garden/plantsx"]),
]
# Statuses for which werkzeug has a class.
STATUSES = (400, 401, 404, 413, 429, 503)


def test_requests_cover_every_error() -> None:
    """REQUESTS has a request for every error of an embedded store; none uses the site's session."""
    site = Flask("site")
    site.secret_key = "hunter2"
    responses = send_all(with_prefix(site))
    names = {name for response in responses for name, _ in response.headers}
    assert names.isdisjoint({"Set-Cookie", "Vary"})
    assert {200, *ERRORS} - {40005, 40401, 40501, 50001, 50304} == {*REQUESTS}
    for number, response in zip(REQUESTS, responses, strict=False):
        assert number == 200 or b'"error":%d,' % number in response.body
    successes = responses[0], *responses[len(REQUESTS) :]
    assert [response.status for response in successes] == ["200 OK"] * 5 + ["204 NO CONTENT"]


def test_embedded_responses_are_those_of_the_service() -> None:
    """An embedded store responds exactly as the standalone service."""
    config = {"PLANTSTORE_MAX_BODY": MAX_BODY, "PLANTSTORE_OPERATIONS": OPERATIONS}
    tokens = StaticTokens({TOKEN: "token-1", READER: Client("reader", ["read"])})
    standalone = create_app(config, store=PartlyUnavailableStore(), verify_token=tokens)
    service = DispatcherMiddleware(Flask("front"), {"/garden": standalone})
    assert send_all(service) == send_all(with_prefix(Flask("site")))


@pytest.mark.parametrize("register", REGISTRATIONS)
@pytest.mark.parametrize("configure", CONFIGURATIONS)
def test_site_configuration_does_not_change_responses(
    configure: Callable[[Flask], None], register: Callable[[Flask], "WSGIApplication"]
) -> None:
    """Responses are the same with any configuration of the host site and at any mount point."""
    site = Flask("site")
    configure(site)
    assert send_all(register(site)) == send_all(with_prefix(Flask("site")))


def full_site() -> Flask:
    """Return a host site with pages of all kinds, error handlers and hooks."""
    site = Flask("site", static_folder=str(ROOT / "tests"))
    site.secret_key = "hunter2"
    site.add_url_rule("/", "home", lambda: jsonify(b=1, a=session.setdefault("visits", 7)))
    site.add_url_rule("/abort/<int:code>", "abort", abort)
    site.add_url_rule("/fail", "fail", lambda: str(1 / 0))
    site.add_url_rule("/url", "url", lambda: url_for("home", _external=True))
    site.register_error_handler(404, lambda error: (f"no {request.path}", 404))
    site.before_request(lambda: session.update(seen=True))
    site.after_request(lambda response: response.headers.add("X-Site", "1") or response)
    return site


def test_site_pages_are_unchanged() -> None:
    """Every page of the host site, with its errors and cookies, stays the same byte for byte."""
    without, embedding = full_site(), full_site()
    embedding.register_blueprint(garden(), url_prefix="/garden")
    for visit in VISITS:
        assert visit_page(embedding, visit) == visit_page(without, visit)


def visit_page(site: Flask, visit: dict[str, Any]) -> tuple[ClientView, dict[str, Any]]:
    """Return what a visitor of a site sees, and the content of the cookie."""
    client = site.test_client()
    response = client.open(**visit)
    headers = [header for header in response.headers if header[0] not in {"Date", "Set-Cookie"}]
    with client.session_transaction() as cookie:
        return ClientView(response.status, headers, response.data), dict(cookie)


def test_site_state_is_unchanged() -> None:
    """Registering the blueprint adds only its own entries to the state of the host site."""
    site = full_site()
    before = state(site)
    site.register_blueprint(garden(), url_prefix="/garden")
    assert send(site, REQUESTS[200]).status == "200 OK"
    assert state(site) == before


def state(site: Flask) -> dict[str, str]:
    """Return the repr of each part of a site, without the blueprint's entries."""
    parts = vars(site.jinja_env) | vars(logging.getLogger(site.name)) | vars(logging.root)
    parts |= vars(site) | {"rules": {rule.endpoint: rule for rule in site.url_map.iter_rules()}}
    for part in ("url_map", "_got_first_request"):
        del parts[part]
    for name, part in parts.items():
        if isinstance(part, dict):
            parts[name] = {key: part[key] for key in part if not str(key).startswith("garden")}
    return {name: repr(part) for name, part in parts.items()}


def own(status: int, description: str | None = None) -> HTTPException:
    """Return an exception of the host site's own class."""
    exception: HTTPException = type("Own", (HTTPException,), {"code": status})(description)
    return exception


@pytest.mark.parametrize(
    ("error", "number", "message"),
    [
        *((default_exceptions[code]("Closed."), code * 100, ": Closed.") for code in STATUSES),
        (TooManyRequests(retry_after=7), 42900, "Too Many Requests: "),
        (own(402, "Pay first."), 40200, "Payment Required: Pay first."),
        (own(499), 49900, "Unknown Error"),
        (own(500), 50000, "Internal Server Error"),
        (default_exceptions[500]("Closed."), 50001, "The service failed."),
        (ValidationError({"token": ["hunter2"]}), 50001, "The service failed."),
        (PlantExists(1), 40004, "A plant with this id already exists."),
        (StoreUnavailable("hunter2"), 50301, "The store is unavailable now."),
        (StoreMisconfigured("hunter2"), 50303, "The store is not set up for plants; "),
    ],
)
def test_exception_in_a_site_hook_becomes_an_error(
    site: Flask, caplog: pytest.LogCaptureFixture, error: Exception, number: int, message: str
) -> None:
    """An exception of a site's hook becomes an Error, and a line of the log at the right level."""
    caplog.set_level("INFO", "plantstore")

    def refuse() -> None:
        raise error

    site.before_request(refuse)
    for kind in default_exceptions:
        site.register_error_handler(kind, lambda error: "the site's own page")
    site.register_error_handler(HTTPException, lambda error: "the site's own page")
    response = site.test_client().open(**REQUESTS[200])
    sent = check_error(response, number)
    assert message in sent
    assert "hunter2" not in sent
    retry = "7" if number == 42900 and "Closed" not in sent else None
    assert response.headers.get("Retry-After") == ("5" if number == 50301 else retry)
    record = caplog.records[-1]
    assert record.levelno == (logging.ERROR if number >= 50000 else logging.INFO)
    assert (record.exc_info is not None) == (number in {50000, 50001, 50300})
    assert record.getMessage().startswith(f"{number}: ")
    assert ("The site refuses the request: " in record.getMessage()) == (number % 100 == 0)


@pytest.mark.parametrize(
    ("result", "status", "body"),
    [
        (redirect("/login"), 302, "/login"),
        (HTTPException(response=redirect("/login")), 302, "/login"),  # As by abort.
        (TooManyRequests(response=Response("later")), 200, "later"),
        (own(202, "Done."), 202, "Done."),
    ],
)
@pytest.mark.parametrize("trap", [True, False])
def test_response_of_a_site_hook_is_unchanged(
    site: Flask, result: Any, status: int, body: str, trap: bool
) -> None:
    """A response that a host site's hook returns or raises, or that is no error, is unchanged."""
    site.config["TRAP_HTTP_EXCEPTIONS"] = trap

    @site.before_request
    def answer() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    response = site.test_client().open(**REQUESTS[200])
    assert (response.status_code, body in response.text) == (status, True)
    assert response.mimetype != "application/json"


def smorest() -> Flask:
    """Return a site whose own API uses flask-smorest."""
    site = Flask("site")
    site.config.from_mapping(API_TITLE="Site", API_VERSION="v1", OPENAPI_VERSION="3.1.0")
    site.config["OPENAPI_URL_PREFIX"] = "/"
    Api(site)
    return site


@pytest.mark.parametrize("framework", [smorest, partial(APIFlask, "site")])
def test_other_api_framework(framework: Callable[[], Flask]) -> None:
    """A host site's API framework and the embedded store do not change each other's responses."""
    without, embedding = framework(), framework()
    assert send_all(with_prefix(embedding)) == send_all(with_prefix(Flask("site")))
    for path in ("/openapi.json", "/nothing", "/garden/nothing"):
        after, before = (app.test_client().get(path) for app in (embedding, without))
        assert (after.status, after.data) == (before.status, before.data)
