"""The methods of a path: 405 (40501), Allow and OPTIONS, for every operation."""

import re
from http import HTTPMethod
from typing import Any

import pytest
from flask import Blueprint, Flask, url_for
from flask.cli import routes_command
from flask.testing import FlaskClient
from werkzeug.routing import BaseConverter, ValidationError
from werkzeug.test import TestResponse

from plantstore import MemoryStore, create_docs_blueprint, create_health_blueprint
from plantstore.blueprint import OPERATIONS
from tests.support.responses import check_error
from tests.support.sites import BEARER, make_blueprint, make_site

HTML = "text/html; charset=utf-8"
OTHER_METHODS = sorted({*HTTPMethod} - {HTTPMethod.OPTIONS, HTTPMethod.POST})


@pytest.mark.parametrize("method", OTHER_METHODS)
@pytest.mark.parametrize("prefix", ["", "/garden", "/outer/inner"])
def test_method_not_allowed(app: Flask, site: Flask, prefix: str, method: str) -> None:
    """Any other method of HTTP is 405 at every mount point; Allow and message name the methods."""
    outer = Blueprint("outer", "site", url_prefix="/outer")
    outer.register_blueprint(make_blueprint(name="inner"), url_prefix="/inner")
    site.register_blueprint(outer)
    client = (site if prefix else app).test_client()
    response = client.open(f"{prefix}/plants", method=method, headers=BEARER)
    assert response.headers["Allow"] == "OPTIONS, POST"
    if method == "HEAD":
        assert (response.status_code, response.data) == (405, b"")
    else:
        assert "OPTIONS, POST" in check_error(response, 40501)


def test_allow_of_several_blueprints() -> None:
    """Blueprints with the same prefix, such as one for each token check, share Allow."""
    site = Flask("site")
    for name in ("create", "read", "list", "delete"):
        site.register_blueprint(make_blueprint(name=name, operations=[name]), url_prefix="/garden")
    client = site.test_client()
    for path, allow in [
        ("/garden/plants", "GET, HEAD, OPTIONS, POST"),
        ("/garden/plants/1", "DELETE, GET, HEAD, OPTIONS"),
    ]:
        assert client.options(path).headers["Allow"] == allow
        response = client.put(path, headers=BEARER)
        check_error(response, 40501)
        assert response.headers["Allow"] == allow


@pytest.mark.parametrize("headers", [{}, BEARER])
@pytest.mark.parametrize("method", ["PROPFIND", "FOO"])
def test_unknown_method_of_the_standalone_service(
    client: FlaskClient, method: str, headers: dict[str, str]
) -> None:
    """In the standalone service, a method that HTTP does not define is 40501 with Allow."""
    response = client.open("/plants", method=method, headers=headers)
    message = check_error(response, 40501)
    assert message.startswith("There is no such operation on this path. ")
    assert message.endswith(" has only the methods OPTIONS, POST.")
    assert response.headers["Allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("method", [*HTTPMethod])
def test_websocket_handshake(client: FlaskClient, method: HTTPMethod) -> None:
    """In the standalone service, the handshake of a WebSocket is 40005 with every method."""
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket"}
    response = client.open("/plants", method=method, headers=BEARER | handshake)
    assert response.status_code == 400
    if method != "HEAD":
        check_error(response, 40005)


@pytest.mark.parametrize(
    "options",
    [
        {"url_prefix": "/<plants>"},
        {"url_prefix": "/garden", "url_defaults": {"plants": "x"}},
        {"url_prefix": "/plants"},
        {"url_prefix": "/plants/"},
        {"url_prefix": "/"},
        {"subdomain": "api"},
    ],
)
def test_every_registration_has_the_same_allow(options: dict[str, Any]) -> None:
    """Allow is the same for every URL prefix, default and subdomain of the blueprint."""
    site = Flask("site", subdomain_matching=True)
    site.config["SERVER_NAME"] = "localhost"
    site.register_blueprint(make_blueprint(), **options)
    prefix = options.get("url_prefix", "").replace("<plants>", "x").rstrip("/")
    url = f"http://{'api.' * ('subdomain' in options)}localhost{prefix}/plants"
    client = site.test_client()
    assert client.options(url).headers["Allow"] == "OPTIONS, POST"
    response = client.put(url, headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "OPTIONS, POST"


def test_unknown_method_of_a_host_site(site: Flask) -> None:
    """In a host site, a method that HTTP does not define gets the 405 page of the site."""
    site.register_error_handler(405, lambda error: ("the site's own page", 405))
    response = site.test_client().open("/garden/plants", method="FOO", headers=BEARER)
    assert (response.status_code, response.data) == (405, b"the site's own page")


@pytest.mark.parametrize("headers", [{}, BEARER, {"Authorization": "Bearer wrong"}])
def test_options_without_credentials(client: FlaskClient, headers: dict[str, str]) -> None:
    """OPTIONS needs no credentials, and reveals nothing but Allow."""
    response = client.options("/plants", headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    # Extensions rely on a Content-Type, which Flask's own OPTIONS responses also have.
    sent = dict(response.headers)
    assert sent.pop("X-Request-ID")
    assert sent == {
        "Allow": "OPTIONS, POST",
        "Content-Length": "0",
        "Content-Type": "text/html; charset=utf-8",
    }


@pytest.mark.parametrize("automatic", [True, False])
def test_options_without_automatic_options(automatic: bool) -> None:
    """OPTIONS is the same in a site that has turned off the automatic OPTIONS of Flask."""
    site = Flask("site")
    site.config["PROVIDE_AUTOMATIC_OPTIONS"] = automatic
    response = make_site(site).test_client().options("/plants")
    assert (response.status_code, response.headers["Allow"]) == (200, "OPTIONS, POST")


@pytest.fixture
def two_paths(store: MemoryStore) -> Flask:
    """Return a site whose blueprint has three operations on two paths."""
    blueprint = make_blueprint(store=store)
    blueprint.get("/plants", endpoint="list_plants")(lambda **_: "plants")
    blueprint.delete("/plants/<int:id>/seeds", endpoint="delete_seeds")(lambda **_: "deleted")
    blueprint.record(blueprint.add_other_methods)
    site = Flask("site")
    site.register_blueprint(blueprint, url_prefix="/<lang>/garden")
    return site


ALLOWED = {
    "/de/garden/plants": "GET, HEAD, OPTIONS, POST",
    "/de/garden/plants/7/seeds": "DELETE, OPTIONS",
}


@pytest.mark.parametrize("method", [*HTTPMethod])
@pytest.mark.parametrize("path", ALLOWED)
def test_every_operation_has_the_same_checks(
    two_paths: Flask, path: str, method: HTTPMethod
) -> None:
    """Credentials, OPTIONS, Allow, 405 and 50302 are checked for every operation of a blueprint."""
    client = two_paths.test_client()

    def send(**options: Any) -> TestResponse:
        return client.open(path, method=method, **options)

    if method == "OPTIONS":
        assert (send().status_code, send().headers["Allow"]) == (200, ALLOWED[path])
        return
    assert send().status_code == 401
    several = {"wsgi.multiprocess": True}
    assert send(headers=BEARER, environ_overrides=several).status_code == 503
    response = send(headers=BEARER)
    if method in ALLOWED[path]:
        assert response.status_code in {200, 400}
    else:
        assert (response.status_code, response.headers["Allow"]) == (405, ALLOWED[path])


def test_site_page_keeps_its_methods(site: Flask) -> None:
    """A page that the host site has at the same path keeps its methods."""
    site.add_url_rule("/garden/plants", "page", lambda: "my plants", methods=["GET", "PUT"])
    client = site.test_client()
    assert client.put("/garden/plants").data == b"my plants"
    response = client.delete("/garden/plants", headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS, POST, PUT"
    allow = client.options("/garden/plants").headers["Allow"]
    assert {*allow.split(", ")} == {"GET", "HEAD", "OPTIONS", "POST", "PUT"}


def test_page_for_every_path_is_not_in_allow(site: Flask) -> None:
    """A page of the host site for every path is not in Allow of a path that it does not serve."""
    site.add_url_rule("/<path:path>", "page", lambda path: "a page", methods=["GET", "PUT"])
    client = site.test_client()
    assert client.put("/garden/other").data == b"a page"
    response = client.put("/garden/plants", headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "OPTIONS, POST"
    assert client.options("/garden/plants").headers["Allow"] == "OPTIONS, POST"


class Refusing(BaseConverter):
    """A converter that accepts nothing."""

    def to_python(self, value: str) -> str:
        """Refuse a part of a URL."""
        raise ValidationError


def test_pages_that_do_not_serve_a_path(site: Flask) -> None:
    """Allow has the methods of a page that redirects, but not of one that refuses the path."""
    site.url_map.converters["refusing"] = Refusing
    site.add_url_rule("/<refusing:page>/plants", "refused", str, methods=["DELETE"])
    site.add_url_rule("/garden/plants", "moved", str, methods=["GET"], redirect_to="/")
    response = site.test_client().put("/garden/plants", headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS, POST"


def test_site_page_with_a_trailing_slash(site: Flask) -> None:
    """A page at the same path with a trailing slash is redirected to, and not in Allow."""
    site.add_url_rule("/garden/plants/", "page", lambda: "my plants")
    client = site.test_client()
    assert client.get("/garden/plants").status_code == 308
    response = client.delete("/garden/plants", headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "OPTIONS, POST"


def test_rules_of_the_site_are_not_copied() -> None:
    """No page of the host site gets another rule, whatever its path."""
    site = Flask("site", static_folder=None)
    for path in ("/shop/plants/list", "/garden/plants/list", "/garden/list"):
        site.add_url_rule(path, path, lambda: "list")
    site.add_url_rule("/list", "plantstore.create_plant")  # Another path of an operation.
    before = {rule.rule for rule in site.url_map.iter_rules()}
    make_site(site, url_prefix="/garden")
    after = {rule.rule for rule in site.url_map.iter_rules()}
    assert not [rule for rule in after - before if "list" in rule]
    assert "/garden/plants" in after


def test_other_paths_get_the_404_page_of_the_site(site: Flask) -> None:
    """A path that no operation has gets the 404 page of the host site, with every method."""
    for path in ("/garden", "/garden/", "/garden/plants/", "/garden/plants/x/y", "/garden/plantsx"):
        for method in HTTPMethod:
            response = site.test_client().open(path, method=method, headers=BEARER)
            assert (response.status_code, response.content_type) == (404, HTML)


def test_flask_routes_lists_the_methods(site: Flask) -> None:
    """`flask routes` lists the methods of the operation, and not those that are refused."""
    listed = site.test_cli_runner().invoke(routes_command, ["--all-methods"]).output
    assert re.search(r"plantstore.create_plant +OPTIONS, POST +/garden/plants", listed)
    assert re.search(r"plantstore.other_methods +OPTIONS +/garden/", listed)


def test_sitemap_excludes_the_blueprint(site: Flask) -> None:
    """A sitemap built from the host site's routes contains only the host site's own pages."""
    pages = [
        rule.rule
        for rule in site.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.arguments
    ]
    assert pages == ["/"]


@pytest.mark.parametrize("value", [None, "[{}]", "x"])
def test_url_of_every_rule(site: Flask, value: str | None) -> None:
    """A host site can build a URL for each of its rules, such as for a list of its pages."""
    site.register_blueprint(create_health_blueprint(store=MemoryStore()))
    site.register_blueprint(create_docs_blueprint(), url_prefix="/garden")
    site.register_blueprint(make_blueprint(name="all", operations=[*OPERATIONS]), url_prefix="/all")
    with site.test_request_context():
        for rule in site.url_map.iter_rules():
            names = {name for name in rule.arguments if value or name != "plantstore_path"}
            values: dict[str, Any] = {name: (value or "x").format(name) for name in names}
            url = url_for(rule.endpoint, **values)
            assert site.test_client().options(url).status_code == 200
