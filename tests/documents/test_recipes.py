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
    "docs/whole-site.md",
]
DOCUMENT = "".join((ROOT / file).read_text() for file in RECIPES)
READER = {"Authorization": "Bearer r3ad"}
PLANTS = "/garden/plants"


def test_every_code_block_is_tested() -> None:
    """Each code block has a name, and a test that executes it."""
    names = re.findall(r"^<!-- block: (.*) -->\n```\w", DOCUMENT, re.MULTILINE)
    assert len(names) == len({*names}) == len(re.findall(r"^```\w", DOCUMENT, re.MULTILINE))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in names:
        assert f'recipe("{name}")' in tests


def test_embedding_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe embeds the store at /garden/plants, whatever the environment of the service is.

    The README has the same lines.
    """
    assert recipe("embedding") == block("embedding")
    for name in ("TOKENS", "TOKENS_FILE", "STORE", "MAX_BODY"):
        monkeypatch.setenv(f"PLANTSTORE_{name}", "0")
    site = run_recipes()
    assert create_rose(site["app"]).status_code == 200
    assert [*site["store"]] == [ROSE_PLANT]


def test_request_ids_recipe(caplog: pytest.LogCaptureFixture) -> None:
    """Each response has one X-Request-ID, that of the site, and the log has the same id."""
    caplog.set_level("INFO", "plantstore")
    site = run_recipes(recipe("request-ids"), recipe("csrf"))["app"]
    site.add_url_rule("/form", "form", lambda: "sent", methods=["POST"])
    client, own = site.test_client(), {"X-Request-ID": "of-the-client"}
    responses = [
        client.post(PLANTS, json=ROSE, headers=BEARER | own),
        client.post(PLANTS, json=ROSE, headers=BEARER),
        client.post(PLANTS, headers=own),
        client.put(PLANTS, headers=BEARER),
        client.options(PLANTS),
        client.get("/garden/plantz"),
        client.post("/form"),
    ]
    statuses = [response.status_code for response in responses]
    assert statuses == [200, 400, 401, 405, 200, 404, 400]
    ids = [id for response in responses for id in response.headers.getlist("X-Request-ID")]
    assert len(ids) == len({*ids}) == len(responses)
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    logged = [vars(record)["plantstore_request_id"] for record in caplog.records]
    assert logged == ids[:3]


def test_method_not_allowed_recipe() -> None:
    """A method that no operation has gets a 405 in JSON, with Allow."""
    response = run_recipes(recipe("method-not-allowed"))["app"].test_client().put(PLANTS)
    check_error(response, 40501)
    assert {*response.headers["Allow"].split(", ")} == {"OPTIONS", "POST"}


@pytest.mark.parametrize("recommended", [False, True])
def test_page_for_every_path(recommended: bool) -> None:
    """A page for every path swallows a mistyped one; with the line of the guide, it is 40400."""
    (line,) = re.findall(r"`(garden\.add_url_rule.*)`", DOCUMENT)
    registration = f"from flask import abort\n{line * recommended}\n"
    registration += 'app.register_blueprint(garden, url_prefix="/garden")\n'
    site = run_recipes(registration=registration)["app"]
    site.add_url_rule("/<path:page>", "page", lambda page: page, methods=["GET", "POST"])
    assert create_rose(site).status_code == 200
    assert site.test_client().get("/pages/x").text == "pages/x"
    response = create_rose(site, "/garden/plant")
    if recommended:
        check_error(response, 40400)
    else:
        assert response.text == "garden/plant"


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
DICT_CONFIG = recipe("log-config")
LOGGERS = '        "loggers": {"plantstore": {"level": "INFO"}},\n'
KEEP = '        "disable_existing_loggers": False,\n'
ROOT_INFO = DICT_CONFIG.replace('["stderr"]}', '["stderr"], "level": "INFO"}')


@pytest.mark.parametrize(
    ("config", "times"),
    [
        ("", 0),
        (recipe("log"), 1),
        (BASIC_CONFIG + re.sub(".*addHandler.*", "", recipe("log")), 1),
        (BASIC_CONFIG + recipe("log"), 2),
        (DICT_CONFIG, 1),
        (ROOT_INFO.replace(LOGGERS, ""), 1),
        (ROOT_INFO.replace(KEEP, ""), 1),
        (ROOT_INFO.replace(KEEP, "").replace(LOGGERS, ""), 0),
    ],
)
def test_log_recipes(config: str, times: int) -> None:
    """The recipes show each new plant and each refused request; with another handler, twice.

    A dictConfig that neither names the logger nor keeps all loggers hides the lines.
    """
    # Another process: pytest configures the logging of its own.
    done = subprocess.run(
        [sys.executable, "-c", site_code(config, THREE_REQUESTS)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert len(done.stderr.splitlines()) == times * 3
    for text in ("40101: Send ", "Plant 1 was added (", "40004: A plant "):
        assert done.stderr.count(text) == times


def test_signal_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe's receiver is called for each new plant of its site."""
    create_rose(run_recipes(recipe("signal"))["app"])
    assert capsys.readouterr().out == "token-1 added Rose\n"


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
        client.options(PLANTS, headers=headers),
        client.post(PLANTS, json=ROSE, headers=BEARER | {"Origin": origin}),
        client.post(PLANTS, json=ROSE, headers={"Origin": origin}),
    ]
    assert [response.status_code for response in responses] == [200, 200, 401]
    allowed = {response.headers.get("Access-Control-Allow-Origin") for response in responses}
    assert allowed == {origin if "shop" in origin else None}
    if "shop" in origin:
        preflight, created, _ = (response.headers for response in responses)
        sent = {*preflight["Access-Control-Allow-Headers"].split(", ")}
        assert sent == {"authorization", "content-type"}
        assert "POST" in preflight["Access-Control-Allow-Methods"]
        readable = {*created["Access-Control-Expose-Headers"].split(", ")}
        assert readable == {"Link", "Retry-After", "X-Request-ID"}


def test_rate_limit_recipe() -> None:
    """Above the rate limit the response is 42900 with Retry-After, but not to other methods."""
    site = run_recipes(recipe("limiter"))["app"]
    site.add_url_rule("/", "home", lambda: "home")
    client = site.test_client()
    for id in range(100):
        new = {"id": id, "name": ""}
        assert client.post(PLANTS, json=new, headers=BEARER).status_code == 200
    response = client.post(PLANTS, json={"id": 100, "name": ""}, headers=BEARER)
    assert "100 per 1 minute" in check_error(response, 42900)
    assert 0 < int(response.headers["Retry-After"]) <= 60
    assert client.get("/").status_code == client.options(PLANTS).status_code == 200


# The ways to register the blueprint: code that replaces lines of the embedding recipe.
HERBS = """
garden = create_blueprint(store=store, verify_token=StaticTokens(["s3cret"]), name="herbs")
"""
RENAME = 'app.register_blueprint(garden, url_prefix="/garden", name="other")\n'
NEST = """
from flask import Blueprint, current_app
inner = Blueprint("inner", "inner")
inner.register_blueprint(garden, url_prefix="/garden")
inner.add_url_rule("/inner", "plantstore", lambda: "private")
parent = Blueprint("parent", "parent")
parent.register_blueprint(inner)
app.register_blueprint(parent)
"""
HOOK = recipe("login")
# The hook of a parent blueprint, before the blueprint is registered.
PARENT_HOOK = HOOK.replace("@app", "@parent").replace("app.", "current_app.")
NEST_WITH_HOOK = NEST.replace("app.register", f"{PARENT_HOOK}\n\napp.register")
HEALTH = """
from plantstore import create_health_blueprint
health = create_health_blueprint(store=store)
app.register_blueprint(health)
"""


def add_login(site: Flask) -> None:
    """Add a login, a login page, and private pages with names like the blueprint's."""
    LoginManager(site).user_loader(lambda id: None)
    site.secret_key = "hunter2"
    site.add_url_rule("/login", "login", lambda: "Log in.")
    for name in ("home", "plantstore", "other"):
        site.add_url_rule(f"/{name}", name, lambda: "private")


@pytest.mark.parametrize(
    ("replaced", "private"),
    [
        ({}, ["/home", "/plantstore", "/other"]),
        ({"garden": HERBS}, ["/home", "/plantstore", "/other"]),
        ({"registration": RENAME}, ["/home", "/plantstore", "/other"]),
        ({"registration": NEST}, ["/home", "/plantstore", "/other", "/inner"]),
        ({"garden": HERBS, "registration": NEST}, ["/home", "/plantstore", "/other", "/inner"]),
        ({"registration": NEST_WITH_HOOK}, ["/inner"]),
    ],
)
def test_login_recipe(replaced: dict[str, str], private: list[str]) -> None:
    """A before_request hook redirects visitors to the login page, and clients of the store never.

    This does not depend on the name of the blueprint, nor on the blueprints around it. A path or
    method that no page has gets the 404 or 405 of the site.
    """
    site = run_recipes("" if "/home" not in private else HOOK, **replaced)["app"]
    add_login(site)
    client = site.test_client()
    assert create_rose(site).status_code == 200
    check_error(client.post(PLANTS, json=ROSE), 40101)
    assert client.get(PLANTS, headers=BEARER).status_code == 405
    assert client.options(PLANTS).status_code == 200
    for path in private:
        assert client.get(path, headers=BEARER).location == "/login"
    assert client.get("/login").data == b"Log in."
    for path in ("/garden/plantz", "/garden/plants/", "/garden", "/nothing"):
        assert client.post(path, json=ROSE, headers=BEARER).status_code == 404
        assert client.get(path).status_code == 404
    assert client.post("/home").status_code == 405


@pytest.mark.parametrize(
    ("hook", "status"), [(HOOK, 302), (HOOK.replace("is garden", "in (garden, health)"), 200)]
)
def test_login_recipe_with_health(hook: str, status: int) -> None:
    """A login hook that exempts both blueprints lets the probes pass."""
    site = run_recipes(HEALTH, hook)["app"]
    add_login(site)
    assert site.test_client().get("/healthz").status_code == status


@pytest.mark.parametrize(
    ("garden", "error"), [(recipe("rights"), 40301), (recipe("own-rule"), 40300)]
)
def test_recipes_for_rights(garden: str, error: int) -> None:
    """A client without the right to change plants gets an Error, and can read; no client: 40101."""
    names = run_recipes(garden=garden)
    client = names["app"].test_client()
    check_error(client.post(PLANTS, json=ROSE, headers=READER), error)
    assert create_rose(names["app"]).status_code == 200
    check_error(client.delete(f"{PLANTS}/1", headers=READER), error)
    assert [*names["store"]] == [ROSE_PLANT]
    for path in (PLANTS, f"{PLANTS}/1"):
        for headers in (READER, BEARER):
            assert client.get(path, headers=headers).status_code == 200
            assert client.head(path, headers=headers).status_code == 200
        check_error(client.get(path), 40101)
        assert client.options(path).status_code == 200
    assert client.delete(f"{PLANTS}/1", headers=BEARER).status_code == 204


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the site of the recipes for pages and for the form."""
    monkeypatch.chdir(tmp_path)
    write_template()
    Path("templates/new_plant.html").write_text(recipe("form-template"))
    return run_recipes(recipe("pages"), recipe("form"))


def test_pages_list_every_plant_once(pages: dict[str, Any]) -> None:
    """The pages list every plant once, in the order of the ids, for any value of after."""
    check_pages(pages)


@pytest.mark.parametrize(
    ("plant", "shown"),
    [
        (ROSE_PLANT, "Rose früh"),
        (Plant(-(2**63), "Lily"), "Lily"),
        (Plant(7, "<b>Rose</b>", '"&<script>'), "&lt;b&gt;Rose&lt;/b&gt; &#34;&amp;&lt;script&gt;"),
    ],
)
def test_page_of_one_plant(pages: dict[str, Any], plant: Plant, shown: str) -> None:
    """The page of a plant shows it, and HTML as text; for any other id, the response is 404."""
    pages["store"].add(plant)
    client = pages["app"].test_client()
    for path in (f"/plants/{plant.id}", "/plants"):
        page = " ".join(client.get(path).text.split())
        assert f"</a> {shown} </li> </ul>" in page
    for id in ("2", "-1", str(10**30), "x"):
        assert client.get(f"/plants/{id}").status_code == 404


NEW = {"id": "7", "name": "Lily", "tag": "white"}


def test_pages_without_a_database(
    pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is unavailable, each page says so, and the form keeps its fields."""

    def fail(*_: Any) -> None:
        raise StoreUnavailable("down")

    for method in ("add", "get", "iterate"):
        monkeypatch.setattr(MemoryStore, method, fail)
    client = pages["app"].test_client()
    form = client.post("/plants/new", data=NEW)
    assert 'value="Lily"' in form.text
    for response in (form, client.get("/plants"), client.get("/plants/1")):
        assert (response.status_code, "Try again later" in response.text) == (503, True)
    assert caplog.messages[0] == "The form could not add a plant: down"


@pytest.mark.parametrize("tag", ["früh", ""])
def test_form_adds_a_plant(pages: dict[str, Any], tag: str) -> None:
    """The form adds a plant, without a tag if the field is empty, and redirects to the list."""
    client = pages["app"].test_client()
    assert client.get("/plants/new").text.count("<input") == 3
    response = client.post("/plants/new", data={"id": "1", "name": "Rose", "tag": tag})
    assert (response.status_code, response.location) == (302, "/plants")
    assert [*pages["store"]] == [Plant(1, "Rose", tag or None)]


INTEGER = "id: Must be an integer"
RANGE = "id: Must be between -2^63 and 2^63-1."
NUL = "Must not contain U+0000."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "1"}, "A plant with this id already exists."),
        ({"name": "a\0b"}, f"name: {NUL}"),
        ({"tag": "\0"}, f"tag: {NUL}"),
        ({"id": ""}, INTEGER),
        ({"id": "7.0"}, INTEGER),
        ({"id": "9" * 5000}, INTEGER),
        ({"id": str(2**63)}, RANGE),
        ({"id": str(-(2**63) - 1), "name": "\0"}, f"{RANGE} name: {NUL}"),
    ],
)
def test_form_says_what_is_wrong(
    pages: dict[str, Any], fields: dict[str, str], message: str
) -> None:
    """The form shows each fault and what the visitor has entered, and the plant is not stored."""
    pages["store"].add(ROSE_PLANT)
    response = pages["app"].test_client().post("/plants/new", data=NEW | fields)
    assert response.status_code == 400
    page = html.unescape(response.text)
    for shown in (message, *(f'value="{value}"' for value in (NEW | fields).values())):
        assert shown in page
    assert [*pages["store"]] == [ROSE_PLANT]


def test_form_with_csrf_protection(pages: dict[str, Any]) -> None:
    """With Flask-WTF and the guide's line, only the page's own form can add a plant.

    The store's clients need no CSRF token.
    """
    (line,) = re.findall("`(<input.*csrf_token.*>)`", DOCUMENT)
    template = recipe("form-template").replace("<button>", f"{line}<button>")
    Path("templates/new_plant.html").write_text(template)
    names = run_recipes(recipe("csrf"), recipe("pages"), recipe("form"))
    client = names["app"].test_client()
    assert b"CSRF token is missing" in client.post("/plants/new", data=NEW).data
    assert create_rose(names["app"]).status_code == 200
    token = re.search('name="csrf_token" value="(.*)"', client.get("/plants/new").text)
    assert token is not None
    response = client.post("/plants/new", data=NEW | {"csrf_token": token[1]})
    assert response.status_code == 302
    assert [*names["store"]] == [ROSE_PLANT, Plant(7, "Lily", "white")]


@pytest.mark.parametrize("host", ["api.example", "api.example:8000", "<host>"])
def test_host_recipe(host: str) -> None:
    """With host_matching, the store is at this host, and the pages of the site stay at theirs."""
    site = run_recipes(
        app='app = Flask("shop", host_matching=True, static_host="www.example")\n',
        registration=recipe("host").replace("api.example", host),
    )["app"]
    site.add_url_rule("/", "home", lambda: "home", host="www.example")
    site.add_url_rule("/later", "later", lambda: "later")
    client, url = site.test_client(), f"http://{host}".replace("<host>", "any.example")
    assert create_rose(site, base_url=url).status_code == 200
    assert client.get(PLANTS, base_url=url, headers=BEARER).status_code == 405
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
    site = run_recipes(recipe("several"))["app"]
    oak = {"Authorization": "Bearer 0ak"}
    assert create_rose(site).status_code == 200
    check_error(create_rose(site, "/trees/plants"), 40102)
    assert site.test_client().post("/trees/plants", json=ROSE, headers=oak).status_code == 200


def test_one_process_recipe() -> None:
    """With the recipe, a memory store is served although the server claims several processes."""
    site = run_recipes(recipe("one-process"))["app"]
    assert create_rose(site, environ_overrides={"wsgi.multiprocess": True}).status_code == 200


@pytest.fixture(scope="module")
def key() -> ECKey:
    """Return the key pair of the token issuer."""
    return ECKey.generate_key("P-256")


@pytest.fixture
def with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: ECKey) -> dict[str, Any]:
    """Return the site of the recipe for JSON Web Tokens."""
    monkeypatch.chdir(tmp_path)
    Path("issuer.pem").write_bytes(key.as_pem(private=False))
    return run_recipes(garden=recipe("tokens") + VERIFY_TOKEN_PASSED)


def signed(key: ECKey, **claims: Any) -> str:
    """Return a token that is valid for an hour, with other claims; without those that are None."""
    # The time counts from the request on, however long ago pytest collected the tests.
    now = int(time.time())
    claims = {"sub": "Flora", "aud": "garden", "exp": 3600} | claims
    for name in {"exp", "nbf"} & {*claims}:
        if isinstance(claims[name], int):
            claims[name] += now
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": "ES256"}, kept, key)


def create_with(names: dict[str, Any], token: str) -> Any:
    """Return the response to a create request with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return names["app"].test_client().post(PLANTS, json=ROSE, headers=headers)


@pytest.mark.parametrize("audience", ["garden", ["shop", "garden"]])
def test_valid_jwt_is_accepted(
    with_tokens: dict[str, Any], key: ECKey, caplog: pytest.LogCaptureFixture, audience: Any
) -> None:
    """A signed JSON Web Token for this audience is accepted until it expires."""
    caplog.set_level("INFO", "plantstore")
    assert create_with(with_tokens, signed(key, aud=audience)).status_code == 200
    assert caplog.messages[0].startswith("Plant 1 was added (client: 'Flora', ")


@pytest.mark.parametrize(
    "claims",
    [
        *({"exp": exp} for exp in (-1, None, "later")),
        *({"aud": audience} for audience in ("shop", ["shop"], None)),
        *({"sub": subject} for subject in (None, 7)),
        {"nbf": 3600},
    ],
)
def test_jwt_with_invalid_claims_is_unauthorized(
    with_tokens: dict[str, Any], key: ECKey, claims: dict[str, Any]
) -> None:
    """An expired token, one for another audience, and one without a required claim are 40102."""
    check_error(create_with(with_tokens, signed(key, **claims)), 40102)
    assert len(with_tokens["store"]) == 0


def test_forged_jwt_is_unauthorized(with_tokens: dict[str, Any], key: ECKey) -> None:
    """A token without a valid signature, by this key and algorithm, is 40102."""
    header, payload, signature = signed(key).split(".")
    # Signed with HMAC, with the public key as the secret.
    by_hmac = f"eyJhbGciOiJIUzI1NiJ9.{payload}"
    digest = hmac.digest(key.as_pem(private=False), by_hmac.encode(), "sha256")
    forged = [
        signed(ECKey.generate_key("P-256")),
        f"{by_hmac}.{urlsafe_b64encode(digest).decode().rstrip('=')}",
        f"eyJhbGciOiJub25lIn0.{payload}.",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{payload[:-4]}.{signature}",
        "....",
        "e30.e30.e30",
    ]
    for token in forged:
        check_error(create_with(with_tokens, token), 40102)
    assert len(with_tokens["store"]) == 0
