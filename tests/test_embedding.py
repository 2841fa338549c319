"""The blueprint in a host site: neither changes the other."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, Response, abort, jsonify, redirect, request, session, url_for
from werkzeug.exceptions import HTTPException, TooManyRequests
from werkzeug.http import HTTP_STATUS_CODES

from plantstore import (
    MemoryStore,
    Plant,
    PlantExists,
    StaticTokens,
    StoreMisconfigured,
    StoreUnavailable,
)
from plantstore.errors import ERRORS
from tests.support.host_sites import (
    CONFIGURATIONS,
    JSON,
    LATER,
    OPERATIONS,
    REGISTRATIONS,
    REQUESTS,
    ClientView,
    garden,
    send,
    send_all,
    with_prefix,
)
from tests.support.responses import check_error, create
from tests.support.serving import ROOT, Gunicorn, post
from tests.support.sites import ROSE, ROSE_JSON, TOKEN, make_site, new_rose

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LATER.insert(0, {**JSON, "method": "GET"})


def test_requests_cover_every_error() -> None:
    """REQUESTS has a request for every error of an embedded store, except 50001.

    50304 is about the file of tokens of the standalone service.
    """
    responses = send_all(with_prefix(Flask("site")))
    assert {200, *ERRORS} - {40005, 40401, 40501, 50001, 50304} == {*REQUESTS}
    for number, response in zip(REQUESTS, responses, strict=False):
        assert number == 200 or b'"error":%d,' % number in response.body
    successes = responses[0], *responses[len(REQUESTS) :]
    assert [response.status for response in successes] == ["200 OK"] * 5 + ["204 NO CONTENT"]


@pytest.mark.parametrize("register", REGISTRATIONS)
@pytest.mark.parametrize("configure", CONFIGURATIONS)
def test_site_configuration_does_not_change_responses(
    configure: Callable[[Flask], None], register: Callable[[Flask], "WSGIApplication"]
) -> None:
    """Responses are the same with any configuration of the host site and at any mount point."""
    site = Flask("site")
    configure(site)
    assert send_all(register(site)) == send_all(with_prefix(Flask("site")))


@pytest.mark.server
def test_embedded_responses_over_a_socket() -> None:
    """Over a socket, an embedded store responds exactly as the standalone service."""
    rose = post(new_rose())
    requests = [rose, post(b"{}"), post(b"["), rose]
    requests.append(rose.replace(b"s3cret", b"x"))
    plant = ROSE_JSON.replace(b"1", b"-1", 1)
    requests += [post(plant), b"GET" + post(b"")[4:]]
    requests.append(requests[-1].replace(b"/plants", b"/plants?limit=1"))
    requests += [
        method + post(b"")[4:].replace(b"/plants", b"/plants/-1") for method in (b"GET", b"DELETE")
    ]
    with (
        Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_OPERATIONS=",".join(OPERATIONS)) as server,
        Gunicorn("-c", os.devnull, "--threads=2", "tests.support.host_sites:served_site()") as site,
    ):
        for request in requests:
            standalone = server.request(request)
            embedded = site.request(request.replace(b" /", b" /garden/", 1))
            for name in ("date", "x-request-id"):
                del standalone.headers[name], embedded.headers[name]
            assert embedded == standalone


def test_store_fault_bypasses_site_error_handlers(caplog: pytest.LogCaptureFixture) -> None:
    """A fault in the store is 50001 despite the host site's handlers; the log names the client."""

    class FailingStore(MemoryStore):
        def add(self, plant: Plant) -> None:
            raise ZeroDivisionError

    site = make_site(store=FailingStore(), verify_token=StaticTokens({TOKEN: "Flora"}))
    site.register_error_handler(HTTPException, lambda error: "the site's own page")
    site.register_error_handler(500, lambda error: "the site's own page")
    check_error(create(site.test_client(), ROSE), 50001)
    assert "ZeroDivisionError" in caplog.text
    (line,) = [line for line in caplog.messages if line.startswith("50001: The service failed.")]
    assert "(client: 'Flora', address: '127.0.0.1', request: " in line


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


# Requests for pages of the host site.
VISITS = [
    *({"path": path} for path in ["/", "/url", "/static/hosts.py", "/fail", "/gardens"]),
    *({"path": f"/abort/{status}"} for status in (400, 401, 403, 404, 413, 418, 429, 500, 503)),
    *({"path": "/", "method": method} for method in ["POST", "OPTIONS", "HEAD", "FOO"]),
    *({"path": path, "method": "POST"} for path in ["/plants", "/garden/", "/garden/plants/"]),
]


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
    logger = logging.getLogger(site.name)
    parts = vars(site.jinja_env) | vars(logger) | vars(logging.root) | vars(site)
    parts["rules"] = {rule.endpoint: rule for rule in site.url_map.iter_rules()}
    del parts["url_map"], parts["_got_first_request"]
    return {name: repr(without_garden(part)) for name, part in parts.items()}


def without_garden(part: Any) -> Any:
    """Return a part of a site without the entries whose names start with garden."""
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in part.items() if not str(name).startswith("garden")}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 418, 429, 451, 500, 503])
def test_abort_in_a_site_hook_becomes_an_error(
    site: Flask, store: MemoryStore, status: int
) -> None:
    """An abort in a host site's hook becomes an Error: its status times 100, its description."""
    site.before_request(lambda: abort(status, "Not on Sundays.", **RETRY_AFTER.get(status, {})))
    for kind in (status, HTTPException):
        site.register_error_handler(kind, lambda error: "the site's own page")
    response = site.test_client().open(**REQUESTS[200])
    if status == 500:
        check_error(response, 50001)
    else:
        message = check_error(response, status * 100)
        assert message == f"{HTTP_STATUS_CODES[status]}: Not on Sundays."
    assert response.headers.get("Retry-After") == ("7" if status in {429, 503} else None)
    assert len(store) == 0


class NotPaid(HTTPException):
    """An exception of the host site, with a status for which werkzeug has no class."""

    code = 402


def test_custom_http_exception_becomes_an_error(site: Flask) -> None:
    """A host site's own HTTPException class becomes an Error, with a description or without."""

    def refuse() -> None:
        raise NotPaid(request.args.get("reason"))

    site.before_request(refuse)
    site.register_error_handler(HTTPException, lambda error: "the site's own page")
    client = site.test_client()
    assert check_error(client.open(**REQUESTS[200]), 40200) == "Payment Required"
    request_with_reason = {**REQUESTS[200], "query_string": {"reason": "Pay first."}}
    assert check_error(client.open(**request_with_reason), 40200) == "Payment Required: Pay first."


# The additional arguments of abort, by status.
RETRY_AFTER: dict[int, dict[str, Any]] = {429: {"retry_after": 7}, 503: {"retry_after": 7}}


@pytest.mark.parametrize("refusal", [abort, lambda response: response])
@pytest.mark.parametrize("trap", [True, False])
def test_response_of_a_site_hook_is_unchanged(site: Flask, refusal: Any, trap: bool) -> None:
    """A response that a host site's hook returns, or aborts with, is unchanged."""
    site.config["TRAP_HTTP_EXCEPTIONS"] = trap
    site.before_request(lambda: refusal(redirect("/login")))
    response = site.test_client().open(**REQUESTS[200])
    assert (response.status_code, response.headers["Location"]) == (302, "/login")


class Done(HTTPException):
    """An exception of the host site that is no error."""

    code = 202
    description = "Done by the site."


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [(Done(), 202, Done.description), (TooManyRequests(response=Response("later")), 200, "later")],
)
def test_http_exception_that_is_no_error_is_unchanged(
    site: Flask, error: HTTPException, status: int, body: str
) -> None:
    """A host site's HTTPException with a status below 400, or with a response, is unchanged."""

    def finish() -> None:
        raise error

    site.before_request(finish)
    response = site.test_client().open(**REQUESTS[200])
    assert (response.status_code, body in response.text) == (status, True)
    assert response.mimetype != "application/json"


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (PlantExists(1), 40004),
        (StoreUnavailable("down"), 50301),
        (StoreMisconfigured("no table"), 50303),
    ],
)
def test_store_error_in_a_site_hook(site: Flask, error: Exception, number: int) -> None:
    """A store's exception in a host site's hook becomes the same Error as in a create request."""

    def use_store() -> None:
        raise error

    site.before_request(use_store)
    check_error(site.test_client().open(**REQUESTS[200]), number)
