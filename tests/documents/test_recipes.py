"""The pages for site owners. The recipes that need a database are in test_recipes_database."""

import hmac
import html
import os
import re
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_login import LoginManager
from joserfc import jwt
from joserfc.jwk import ECKey

from plantstore import MemoryStore, Plant, StoreUnavailable
from tests.support.readme import (
    VERIFY_TOKEN_PASSED,
    block,
    check_pages,
    create_rose,
    recipe,
    run_recipes,
    site_code,
    write_template,
)
from tests.support.responses import check_error
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import BEARER, ROSE, ROSE_PLANT

# The pages for site owners.
RECIPES = [
    "docs/embedding.md",
    *(f"docs/recipes-{name}.md" for name in ("database", "clients", "pages", "rare")),
    "docs/testing.md",
]
DOCUMENT = "".join((ROOT / file).read_text() for file in RECIPES)


def test_every_code_block_is_tested() -> None:
    """Each code block has a name, and a test that executes it."""
    names = re.findall(r"^<!-- block: (.*) -->\n```\w", DOCUMENT, re.MULTILINE)
    assert len(names) == len({*names}) == len(re.findall(r"^```\w", DOCUMENT, re.MULTILINE))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in names:
        assert f'recipe("{name}")' in tests


def test_embedding_recipe() -> None:
    """The recipe embeds the store at /garden/plants. The README has the same lines."""
    assert recipe("embedding") == block("embedding")
    site = run_recipes()
    assert create_rose(site["app"]).status_code == 200
    assert [*site["store"]] == [ROSE_PLANT]


def test_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the standalone service have no effect in a host site."""
    for name in ("TOKENS", "TOKENS_FILE", "STORE", "MAX_BODY"):
        monkeypatch.setenv(f"PLANTSTORE_{name}", "0")
    assert create_rose(run_recipes()["app"]).status_code == 200


def test_request_ids_recipe(caplog: pytest.LogCaptureFixture) -> None:
    """Each response has one X-Request-ID, that of the site, and the log has the same id."""
    caplog.set_level("INFO", "plantstore")
    site = run_recipes(recipe("request-ids"), recipe("csrf"))["app"]
    site.add_url_rule("/form", "form", lambda: "sent", methods=["POST"])
    client = site.test_client()
    own = {"X-Request-ID": "of-the-client"}
    responses = [
        client.post("/garden/plants", json=ROSE, headers=BEARER | own),
        client.post("/garden/plants", json=ROSE, headers=BEARER),
        client.post("/garden/plants", headers=own),
        client.put("/garden/plants", headers=BEARER),
        client.options("/garden/plants"),
        client.get("/garden/plantz"),
        client.post("/form"),
    ]
    statuses = [response.status_code for response in responses]
    assert statuses == [200, 400, 401, 405, 200, 404, 400]
    ids = []
    for response in responses:
        (id,) = response.headers.getlist("X-Request-ID")
        assert re.fullmatch("[0-9a-f]{32}", id)
        ids.append(id)
    assert len({*ids}) == len(ids)
    logged = [vars(record)["plantstore_request_id"] for record in caplog.records]
    assert logged == ids[:3]


def test_method_not_allowed_recipe() -> None:
    """A method that no operation has gets a 405 in JSON, with Allow."""
    client = run_recipes(recipe("method-not-allowed"))["app"].test_client()
    response = client.put("/garden/plants", headers=BEARER)
    check_error(response, 40501)
    assert {*response.headers["Allow"].split(", ")} == {"OPTIONS", "POST"}


# What a site with the default configuration of Python's logging does with three requests.
THREE_REQUESTS = """
headers = {"Authorization": "Bearer s3cret"}
client = app.test_client()
client.post("/garden/plants")
client.post("/garden/plants", json={"id": 1, "name": "Rose"}, headers=headers)
client.post("/garden/plants", json={"id": 1, "name": "Rose"}, headers=headers)
"""
# The configuration of a site that has a handler for all loggers.
BASIC_CONFIG = "import logging\nlogging.basicConfig()\n"


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        ("", 0),
        (recipe("log"), 3),
        (BASIC_CONFIG + re.sub(".*addHandler.*", "", recipe("log")), 3),
        (BASIC_CONFIG + recipe("log"), 6),
    ],
)
def test_log_recipe(config: str, lines: int) -> None:
    """The recipe shows each new plant and each refused request; with another handler, twice."""
    # Another process: pytest configures the logging of its own.
    done = subprocess.run(
        [sys.executable, "-c", site_code(config, THREE_REQUESTS)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    shown = done.stderr.splitlines()
    assert len(shown) == lines
    for text in ("40101: Send ", "Plant 1 was added (", "40004: A plant "):
        assert len([line for line in shown if text in line]) == lines / 3


def test_signal_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe's receiver is called for each new plant of its site."""
    site = run_recipes(recipe("signal"))
    assert create_rose(site["app"]).status_code == 200
    assert capsys.readouterr().out == "token-1 added Rose\n"


def test_csrf_recipe() -> None:
    """The site's forms require a CSRF token, and the store's clients need none."""
    site = run_recipes(recipe("csrf"))["app"]
    site.add_url_rule("/form", "form", lambda: "sent", methods=["POST"])
    client = site.test_client()
    assert b"CSRF token is missing" in client.post("/form").data
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200


@pytest.mark.parametrize("origin", ["https://shop.example", "https://other.example"])
def test_cors_recipe(origin: str) -> None:
    """Pages of the allowed origin can use the store, errors included, and no other path."""
    headers = {"Access-Control-Request-Method": "POST", "Origin": origin}
    headers["Access-Control-Request-Headers"] = "authorization, content-type"
    site = run_recipes(recipe("cors"))["app"]
    site.add_url_rule("/gardens", "gardens", lambda: "the site's own")
    client = site.test_client()
    assert "Access-Control-Allow-Origin" not in client.get("/gardens", headers=headers).headers
    responses = [
        client.options("/garden/plants", headers=headers),
        client.post("/garden/plants", json=ROSE, headers=BEARER | {"Origin": origin}),
        client.post("/garden/plants", json=ROSE, headers={"Origin": origin}),
    ]
    assert [response.status_code for response in responses] == [200, 200, 401]
    allowed = {response.headers.get("Access-Control-Allow-Origin") for response in responses}
    assert allowed == {origin if "shop" in origin else None}
    if "shop" in origin:
        allowed_headers = responses[0].headers["Access-Control-Allow-Headers"]
        assert {*allowed_headers.split(", ")} == {"authorization", "content-type"}
        assert "POST" in responses[0].headers["Access-Control-Allow-Methods"]
        exposed = responses[1].headers["Access-Control-Expose-Headers"]
        assert {*exposed.split(", ")} == {"Link", "Retry-After", "X-Request-ID"}


def test_rate_limit_recipe() -> None:
    """Above the rate limit the response is 42900 with Retry-After.

    Pages and preflight requests are not limited.
    """
    site = run_recipes(recipe("limiter"))["app"]
    site.add_url_rule("/", "home", lambda: "home")
    client = site.test_client()
    for id in range(100):
        new = {"id": id, "name": ""}
        assert client.post("/garden/plants", json=new, headers=BEARER).status_code == 200
    response = client.post("/garden/plants", json={"id": 100, "name": ""}, headers=BEARER)
    assert "100 per 1 minute" in check_error(response, 42900)
    assert 0 < int(response.headers["Retry-After"]) <= 60
    assert client.get("/").status_code == client.options("/garden/plants").status_code == 200


# The ways to register the blueprint: code that replaces lines of the embedding recipe.
CREATE_HERBS = """
garden = create_blueprint(store=store, verify_token=StaticTokens(["s3cret"]), name="herbs")
"""
RENAME = """
app.register_blueprint(garden, url_prefix="/garden", name="other")
"""
NEST = """
from flask import Blueprint
inner = Blueprint("inner", "inner")
inner.register_blueprint(garden, url_prefix="/garden")
inner.add_url_rule("/inner", "plantstore", lambda: "private")
parent = Blueprint("parent", "parent")
parent.register_blueprint(inner)
app.register_blueprint(parent)
"""
REGISTRATIONS: list[dict[str, str]] = [
    {},
    {"garden": CREATE_HERBS},
    {"registration": RENAME},
    {"registration": NEST},
    {"garden": CREATE_HERBS, "registration": NEST},
]


def add_login(site: Flask) -> None:
    """Add a login, a login page, and private pages with names like the blueprint's."""
    LoginManager(site).user_loader(lambda id: None)
    site.secret_key = "hunter2"
    site.add_url_rule("/login", "login", lambda: "Log in.")
    for name in ("home", "plantstore", "other"):
        site.add_url_rule(f"/{name}", name, lambda: "private")


@pytest.mark.parametrize("registration", REGISTRATIONS)
def test_login_recipe(registration: dict[str, str]) -> None:
    """A before_request hook redirects visitors to the login page, and clients of the store never.

    This does not depend on the name of the blueprint, nor on the blueprints around it. A path or
    method that no page has gets the 404 or 405 of the site.
    """
    site = run_recipes(recipe("login"), **registration)["app"]
    add_login(site)
    client = site.test_client()
    assert create_rose(site).status_code == 200
    check_error(client.post("/garden/plants", json=ROSE), 40101)
    assert client.get("/garden/plants", headers=BEARER).status_code == 405
    assert client.options("/garden/plants").status_code == 200
    for path in ("/home", "/plantstore", "/other"):
        assert client.get(path, headers=BEARER).location == "/login"
    assert client.get("/login").data == b"Log in."
    for path in ("/garden/plantz", "/garden/plants/", "/garden", "/nothing"):
        assert client.post(path, json=ROSE, headers=BEARER).status_code == 404
        assert client.get(path).status_code == 404
    assert client.post("/home").status_code == 405
    if "inner" in registration.get("registration", ""):
        assert client.get("/inner").location == "/login"


def test_login_recipe_in_a_parent_blueprint() -> None:
    """The hook of a parent blueprint exempts the store, and no other page of the parent."""
    hook = recipe("login").replace("@app", "@parent").replace("app.", "current_app.")
    site = run_recipes(
        "from flask import current_app",
        registration=NEST.replace("app.register", f"{hook}\n\napp.register"),
    )["app"]
    add_login(site)
    assert create_rose(site).status_code == 200
    assert site.test_client().get("/inner", headers=BEARER).location == "/login"


READER = {"Authorization": "Bearer r3ad"}


def test_rights_recipe() -> None:
    """A client without the right to an operation gets 40301, and the other one has every right."""
    client = run_recipes(garden=recipe("rights"))["app"].test_client()
    check_error(client.post("/garden/plants", json=ROSE, headers=READER), 40301)
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200
    check_error(client.delete("/garden/plants/1", headers=READER), 40301)
    assert client.get("/garden/plants/1", headers=READER).status_code == 200
    assert client.get("/garden/plants", headers=READER).status_code == 200
    assert client.delete("/garden/plants/1", headers=BEARER).status_code == 204


def test_own_rule_recipe() -> None:
    """Every client can read and list; one that is not a writer gets 40300 for the rest."""
    names = run_recipes(garden=recipe("own-rule"))
    client = names["app"].test_client()
    check_error(client.post("/garden/plants", json=ROSE, headers=READER), 40300)
    assert len(names["store"]) == 0
    assert create_rose(names["app"]).status_code == 200
    check_error(client.delete("/garden/plants/1", headers=READER), 40300)
    assert [*names["store"]] == [ROSE_PLANT]
    for headers in (READER, BEARER):
        for path in ("/garden/plants", "/garden/plants/1"):
            assert client.get(path, headers=headers).status_code == 200
            assert client.head(path, headers=headers).status_code == 200
    assert client.delete("/garden/plants/1", headers=BEARER).status_code == 204


def test_own_rule_recipe_without_a_token() -> None:
    """Without a token, OPTIONS is answered, and every operation is 40101."""
    client = run_recipes(garden=recipe("own-rule"))["app"].test_client()
    for path in ("/garden/plants", "/garden/plants/1"):
        assert client.options(path).status_code == 200
        check_error(client.get(path), 40101)


@pytest.mark.parametrize(
    ("size", "max_body", "error"),
    [(16000, 10**6, None), (17000, 10**6, 41301), (9000, 10**4, None), (11000, 10**4, 41301)],
)
def test_body_size_recipe(size: int, max_body: int, error: int | None) -> None:
    """The lower one of max_body and the site's MAX_CONTENT_LENGTH applies: above it, 41301."""
    arguments = 'store=store, verify_token=StaticTokens(["s3cret"])'
    garden = f"garden = create_blueprint({arguments}, max_body={max_body})\n"
    names = run_recipes(recipe("body-size"), garden=garden)
    new = {"id": 1, "name": "x" * size}
    response = names["app"].test_client().post("/garden/plants", json=new, headers=BEARER)
    if error is None:
        assert response.status_code == 200
    else:
        check_error(response, error)
    assert len(names["store"]) == (error is None)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the site of the recipe for pages that show plants."""
    monkeypatch.chdir(tmp_path)
    write_template()
    return run_recipes(recipe("pages"))


def test_pages_list_every_plant_once(pages: dict[str, Any]) -> None:
    """The pages list every plant once, in the order of the ids, for any value of after."""
    check_pages(pages)


def test_page_of_one_plant(pages: dict[str, Any]) -> None:
    """The page of a plant shows it; for any other id, the response is 404."""
    client = pages["app"].test_client()
    for plant in (Plant(1, "Rose", "früh"), Plant(-(2**63), "Lily")):
        pages["store"].add(plant)
        assert " ".join(client.get(f"/plants/{plant.id}").text.split()).endswith(
            f"{plant.name} {plant.tag or ''}".strip() + " </li> </ul>"
        )
    for id in ("2", "-1", str(10**30), "x"):
        assert client.get(f"/plants/{id}").status_code == 404


def test_pages_escape_html(pages: dict[str, Any]) -> None:
    """HTML in a name or a tag is shown as text."""
    pages["store"].add(Plant(1, "<b>Rose</b>", '"&<script>'))
    for path in ("/plants", "/plants/1"):
        page = pages["app"].test_client().get(path).text
        assert "&lt;b&gt;Rose&lt;/b&gt; &#34;&amp;&lt;script&gt;" in page


def test_pages_without_a_database(pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is unavailable, the pages ask the visitor to try again later."""

    def fail(*_: Any) -> None:
        raise StoreUnavailable("down")

    monkeypatch.setattr(MemoryStore, "get", fail)
    monkeypatch.setattr(MemoryStore, "iterate", fail)
    pages["store"].add(ROSE_PLANT)
    for path in ("/plants", "/plants/1"):
        response = pages["app"].test_client().get(path)
        assert (response.status_code, "Try again later" in response.text) == (503, True)


@pytest.fixture
def form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the site of the recipes for pages and for the form."""
    monkeypatch.chdir(tmp_path)
    write_template()
    Path("templates/new_plant.html").write_text(recipe("form-template"))
    return run_recipes(recipe("pages"), recipe("form"))


@pytest.mark.parametrize("tag", ["früh", ""])
def test_form_adds_a_plant(form: dict[str, Any], tag: str) -> None:
    """The form adds a plant, without a tag if the field is empty, and redirects to the list."""
    client = form["app"].test_client()
    assert client.get("/plants/new").text.count("<input") == 3
    response = client.post("/plants/new", data={"id": "1", "name": "Rose", "tag": tag})
    assert (response.status_code, response.location) == (302, "/plants")
    assert [*form["store"]] == [Plant(1, "Rose", tag or None)]


NEW = {"id": "7", "name": "Lily", "tag": "white"}
EXISTS = "A plant with this id already exists."
NUL = "Must not contain U+0000."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "1"}, EXISTS),
        ({"name": "a\0b"}, f"name: {NUL}"),
        ({"tag": "\0"}, f"tag: {NUL}"),
        ({"id": "seven"}, "id: Must be an integer"),
        ({"id": ""}, "id: Must be an integer"),
        ({"id": "7.0"}, "id: Must be an integer"),
        ({"id": "9" * 5000}, "id: Must be an integer"),
        ({"id": str(2**63)}, "id: Must be between -2^63 and 2^63-1."),
        ({"id": str(-(2**63) - 1)}, "id: Must be between -2^63 and 2^63-1."),
        ({"id": str(2**63), "name": "\0"}, f"2^63-1. name: {NUL}"),
    ],
)
def test_form_says_what_is_wrong(
    form: dict[str, Any], fields: dict[str, str], message: str
) -> None:
    """The form shows each fault and what the visitor has entered, and the plant is not stored."""
    form["store"].add(ROSE_PLANT)
    response = form["app"].test_client().post("/plants/new", data=NEW | fields)
    assert response.status_code == 400
    page = html.unescape(response.text)
    assert message in page
    for value in (NEW | fields).values():
        assert f'value="{value}"' in page
    assert [*form["store"]] == [ROSE_PLANT]


def test_form_without_a_database(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is unavailable, the form keeps its fields, and the log has the reason."""

    def fail(*_: Any) -> None:
        raise StoreUnavailable("down")

    monkeypatch.setattr(MemoryStore, "add", fail)
    response = form["app"].test_client().post("/plants/new", data=NEW)
    assert (response.status_code, "Try again later" in response.text) == (503, True)
    assert 'value="Lily"' in response.text
    assert caplog.messages == ["The form could not add a plant: down"]


def test_form_with_csrf_protection(form: dict[str, Any]) -> None:
    """With Flask-WTF and the guide's line, only the page's own form can add a plant."""
    (line,) = re.findall("`(<input.*csrf_token.*>)`", DOCUMENT)
    Path("templates/new_plant.html").write_text(
        recipe("form-template").replace("<button>", f"{line}<button>")
    )
    names = run_recipes(recipe("csrf"), recipe("pages"), recipe("form"))
    client = names["app"].test_client()
    assert client.post("/plants/new", data=NEW).status_code == 400
    assert len(names["store"]) == 0
    token = re.search('name="csrf_token" value="(.*)"', client.get("/plants/new").text)
    assert token is not None
    response = client.post("/plants/new", data=NEW | {"csrf_token": token[1]})
    assert response.status_code == 302
    assert [*names["store"]] == [Plant(7, "Lily", "white")]


HOST_MATCHING = 'app = Flask("shop", host_matching=True, static_host="www.example")\n'


@pytest.mark.parametrize("host", ["api.example", "api.example:8000", "<host>"])
def test_host_recipe(host: str) -> None:
    """With host_matching, the store is at this host, and the pages of the site stay at theirs."""
    registration = recipe("host").replace("api.example", host)
    site = run_recipes(app=HOST_MATCHING, registration=registration)["app"]
    site.add_url_rule("/", "home", lambda: "home", host="www.example")
    site.add_url_rule("/later", "later", lambda: "later")
    client, url = site.test_client(), f"http://{host}".replace("<host>", "any.example")
    assert create_rose(site, base_url=url).status_code == 200
    assert client.get("/garden/plants", base_url=url, headers=BEARER).status_code == 405
    for path in ("/", "/later", "/static/x"):
        assert client.get(path, base_url=url).status_code == 404
    assert client.get("/", base_url="http://www.example").data == b"home"
    other = create_rose(site, base_url="http://www.example").status_code
    assert other == (400 if host == "<host>" else 404)


def test_subdomain() -> None:
    """With subdomain_matching, the store is at its subdomain, and only there."""
    (line,) = re.findall(r"^  `(app\.register_blueprint\(.*subdomain.*\))`", DOCUMENT, re.MULTILINE)
    app = (
        'app = Flask("shop", subdomain_matching=True)\napp.config["SERVER_NAME"] = "shop.example"\n'
    )
    site = run_recipes(app=app, registration=line)["app"]
    assert create_rose(site, base_url="http://api.shop.example").status_code == 200
    assert create_rose(site, base_url="http://shop.example").status_code == 404


def test_several_recipe() -> None:
    """Each plant store of a site has its own plants and tokens."""
    names = run_recipes(recipe("several"))
    site = names["app"]
    assert create_rose(site).status_code == 200
    check_error(create_rose(site, "/trees/plants"), 40102)
    oak = {"Authorization": "Bearer 0ak"}
    assert site.test_client().post("/trees/plants", json=ROSE, headers=oak).status_code == 200
    check_error(site.test_client().post("/garden/plants", json=ROSE, headers=oak), 40102)


def test_one_process_recipe() -> None:
    """With the recipe, a memory store is served although the server claims several processes."""
    names = run_recipes(recipe("one-process"))
    several = {"wsgi.multiprocess": True}
    assert create_rose(names["app"], environ_overrides=several).status_code == 200
    assert [*names["store"]] == [ROSE_PLANT]


# Claims that the site accepts; the time of each is in seconds from now.
VALID_CLAIMS = {"sub": "Flora", "aud": "garden", "exp": 3600}


@pytest.fixture(scope="module")
def key() -> ECKey:
    """Return the key pair of the token issuer."""
    return ECKey.generate_key("P-256")


@pytest.fixture
def site_with_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: ECKey
) -> tuple[FlaskClient, MemoryStore]:
    """Return a client of a site that verifies JSON Web Tokens, and the site's store."""
    monkeypatch.chdir(tmp_path)
    Path("issuer.pem").write_bytes(key.as_pem(private=False))
    names = run_recipes(garden=recipe("tokens") + VERIFY_TOKEN_PASSED)
    return names["app"].test_client(), names["store"]


def bearer(claims: dict[str, Any], key: ECKey) -> dict[str, str]:
    """Return an Authorization header with a signed token of these claims."""
    # The time counts from the request on, however long ago pytest collected the tests.
    now = int(time.time())
    claims = {
        name: now + value if name in {"exp", "nbf"} and isinstance(value, int) else value
        for name, value in claims.items()
    }
    return {"Authorization": f"Bearer {jwt.encode({'alg': 'ES256'}, claims, key)}"}


def test_valid_jwt_is_accepted(
    site_with_tokens: tuple[FlaskClient, MemoryStore], key: ECKey, caplog: pytest.LogCaptureFixture
) -> None:
    """A signed JSON Web Token for this audience is accepted until it expires."""
    client, store = site_with_tokens
    caplog.set_level("INFO", "plantstore")
    for id, audience in enumerate(["garden", ["shop", "garden"]]):
        claims = VALID_CLAIMS | {"aud": audience}
        new = {"id": id, "name": "Rose"}
        response = client.post("/garden/plants", json=new, headers=bearer(claims, key))
        assert response.status_code == 200
    assert caplog.messages[0].startswith("Plant 0 was added (client: 'Flora', ")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": -1},
        {"exp": None},
        {"exp": "later"},
        {"aud": "shop"},
        {"aud": ["shop"]},
        {"aud": None},
        {"sub": None},
        {"sub": 7},
        {"nbf": 3600},
    ],
)
def test_jwt_with_invalid_claims_is_unauthorized(
    site_with_tokens: tuple[FlaskClient, MemoryStore], key: ECKey, claims: dict[str, Any]
) -> None:
    """An expired token, one for another audience, and one without a required claim are 40102."""
    client, store = site_with_tokens
    faulty = {name: value for name, value in (VALID_CLAIMS | claims).items() if value is not None}
    check_error(client.post("/garden/plants", json=ROSE, headers=bearer(faulty, key)), 40102)
    assert len(store) == 0


def test_forged_jwt_is_unauthorized(
    site_with_tokens: tuple[FlaskClient, MemoryStore], key: ECKey
) -> None:
    """A token without a valid signature, by this key and algorithm, is 40102."""
    client, store = site_with_tokens
    good = bearer(VALID_CLAIMS, key)["Authorization"]
    header, payload, signature = good.split(".")
    # Signed with HMAC, with the public key as the secret.
    signed = f"eyJhbGciOiJIUzI1NiJ9.{payload}"
    digest = hmac.digest(key.as_pem(private=False), signed.encode(), "sha256")
    forged = [
        bearer(VALID_CLAIMS, ECKey.generate_key("P-256"))["Authorization"],
        f"Bearer {signed}.{urlsafe_b64encode(digest).decode().rstrip('=')}",
        f"Bearer eyJhbGciOiJub25lIn0.{payload}.",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{payload[:-4]}.{signature}",
        "Bearer .",
        "Bearer ....",
        "Bearer e30.e30.e30",
    ]
    for authorization in forged:
        headers = {"Authorization": authorization}
        check_error(client.post("/garden/plants", json=ROSE, headers=headers), 40102)
    assert len(store) == 0
