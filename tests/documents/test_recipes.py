"""The pages for site owners. The recipes that need a database are in test_recipes_database."""

import hmac
import html
import re
import shlex
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_login import LoginManager
from joserfc import jwt
from joserfc.jwk import ECKey
from werkzeug.exceptions import BadRequest

from plantstore import MemoryStore, Plant, StoreUnavailable, create_app
from tests.support.fresh import run
from tests.support.readme import (
    VERIFY_TOKEN_PASSED,
    block,
    create_rose,
    recipe,
    run_recipes,
    site_code,
)
from tests.support.responses import check_error
from tests.support.serving import ROOT
from tests.support.sites import BEARER, ROSE, ROSE_PLANT

# The pages for site owners.
RECIPES = [
    *(f"docs/{name}.md" for name in ("embedding", "testing", "whole-site")),
    *(f"docs/recipes-{name}.md" for name in ("database", "clients", "pages", "rare")),
]
DOCUMENT = "".join((ROOT / file).read_text() for file in RECIPES)
# What replaces the line that registers the blueprint.
REGISTER = 'app.register_blueprint(garden, url_prefix="/garden")\n'
NEST = """
from flask import Blueprint
inner = Blueprint("inner", "inner")
inner.register_blueprint(garden, url_prefix="/garden")
inner.add_url_rule("/inner", "plantstore", lambda: "private")
parent = Blueprint("parent", "parent")
parent.register_blueprint(inner)
app.register_blueprint(parent)
"""
HOST_MATCHING = 'app = Flask("shop", host_matching=True, static_host="www.example")\n'
SUBDOMAINS = """
app = Flask("shop", subdomain_matching=True)
app.config["SERVER_NAME"] = "shop.example"
"""
(SUBDOMAIN,) = re.findall(r"^  `(app\.register_blueprint\(.*subdomain.*\))`", DOCUMENT, re.M)
(SLASH,) = re.findall("`(app.url_map.strict_slashes = .*)`", DOCUMENT)
(EVERY_PATH,) = re.findall(r"`(garden\.add_url_rule.*)`", DOCUMENT)
PAGE_FOR_EVERY_PATH = '@app.post("/<path:page>")\ndef page(page): return page\n'
LOGIN = recipe("login")
HEALTH = """
from plantstore import create_health_blueprint
health = create_health_blueprint(store=store)
app.register_blueprint(health)
"""
# What a site with the default configuration of Python's logging does with three requests.
THREE_REQUESTS = """
for headers in {}, {"Authorization": "Bearer s3cret"}, {"Authorization": "Bearer s3cret"}:
    app.test_client().post("/garden/plants", json={"id": 1, "name": "Rose"}, headers=headers)
"""
# The configuration of a site that has a handler for all loggers.
BASIC_CONFIG = "import logging\nlogging.basicConfig()\n"
LOGGERS = '        "loggers": {"plantstore": {"level": "INFO"}},\n'
KEEP = '        "disable_existing_loggers": False,\n'
ROOT_INFO = recipe("log-config").replace('["stderr"]}', '["stderr"], "level": "INFO"}')
NEW = {"id": "7", "name": "Lily", "tag": "white"}
RANGE = "id: Must be between -2^63 and 2^63-1. name: Must not contain U+0000."


def test_every_code_block_is_tested() -> None:
    """Each code block has a name, and a test that executes it."""
    names = re.findall(r"^<!-- block: (.*) -->\n```\w", DOCUMENT, re.MULTILINE)
    assert len(names) == len({*names}) == len(re.findall(r"^```\w", DOCUMENT, re.MULTILINE))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in names:
        assert f'recipe("{name}")' in tests


def test_embedding_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe, which the README has too, embeds the store, whatever the environment is."""
    assert recipe("embedding") == block("embedding")
    for name in ("TOKENS", "TOKENS_FILE", "STORE", "MAX_BODY"):
        monkeypatch.setenv(f"PLANTSTORE_{name}", "0")
    names = run_recipes()
    check(names["app"], "POST /garden/plants s3cret 200")
    assert [*names["store"]] == [ROSE_PLANT]


def check(site: Flask, requests: str) -> None:
    """Send requests, such as "POST /garden/plants s3cret 200", and check their status or Error."""
    for line in requests.split(", "):
        method, url, *tokens, expected = line.split()
        headers = [("Authorization", f"Bearer {token}") for token in tokens]
        body: Any = {"json": ROSE} if method == "POST" else {}
        response = site.test_client().open(url, method=method, headers=headers, **body)
        data = response.get_json(silent=True) if response.status_code >= 400 else None
        assert (line, data["error"] if data else response.status_code) == (line, int(expected))


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # SeaSurf.
@pytest.mark.parametrize(
    ("code", "replaced", "requests"),
    [
        (
            recipe("several"),
            {},
            "POST /garden/plants s3cret 200, POST /trees/plants s3cret 40102, "
            "POST /trees/plants 0ak 200",
        ),
        (
            "",
            {"registration": recipe("tenants"), "garden": ""},
            "POST /gardens/north/plants n0rth 200, POST /gardens/south/plants n0rth 40102, "
            "POST /gardens/south/plants s0uth 200, POST /gardens/west/plants n0rth 40400, "
            "POST /gardens/west/plants 40101",
        ),
        *(
            (
                "",
                {"garden": garden},
                f"POST /garden/plants r3ad {refusal}, POST /garden/plants s3cret 200, "
                f"DELETE /garden/plants/1 r3ad {refusal}, GET /garden/plants/1 r3ad 200, "
                "HEAD /garden/plants r3ad 200, GET /garden/plants 40101, "
                "OPTIONS /garden/plants/1 200, DELETE /garden/plants/1 s3cret 204",
            )
            for garden, refusal in ((recipe("rights"), 40301), (recipe("own-rule"), 40300))
        ),
        *(
            (
                '@app.get("/", host="www.example")\ndef home(): return "home"\n',
                {"app": HOST_MATCHING, "registration": recipe("host").replace("api.example", host)},
                f"POST http://{url}/garden/plants s3cret 200, GET http://{url}/ 404, "
                f"GET http://{url}/garden/plants s3cret 405, GET http://{url}/static/x 404, "
                "GET http://www.example/ 200, "
                f"POST http://www.example/garden/plants s3cret {other}",
            )
            for host, url, other in (
                ("api.example:8000", "api.example:8000", 404),
                ("<host>", "any.example", 40004),
            )
        ),
        (
            "",
            {"app": SUBDOMAINS, "registration": f"{SUBDOMAIN}\n"},
            "POST http://api.shop.example/garden/plants s3cret 200, "
            "POST http://shop.example/garden/plants s3cret 404",
        ),
        (
            recipe("talisman"),
            {},
            "POST /garden/plants s3cret 302, POST https://localhost/garden/plants s3cret 200, "
            "GET /healthz 200, GET /readyz 200",
        ),
        (
            recipe("seasurf") + PAGE_FOR_EVERY_PATH,
            {},
            "POST /garden/plants s3cret 200, POST /gardening 403",
        ),
        ("", {"registration": f"{SLASH}\n{REGISTER}"}, "POST /garden/plants/ s3cret 200"),
        ("", {}, "POST /garden/plants/ s3cret 404"),
        (recipe("method-not-allowed"), {}, "PUT /garden/plants 40501"),
        (
            PAGE_FOR_EVERY_PATH,
            {"registration": f"from flask import abort\n{EVERY_PATH}\n{REGISTER}"},
            "POST /garden/plant s3cret 40400, POST /garden/plants s3cret 200",
        ),
    ],
)
def test_responses_of_recipes(code: str, replaced: dict[str, str], requests: str) -> None:
    """With each of these recipes, the requests are accepted or refused as the guide says."""
    check(run_recipes(code, **replaced)["app"], requests)


@pytest.mark.parametrize("tag", ["herb", None, "weed", ""])
def test_only_some_tags(tag: str | None) -> None:
    """A plant is created or updated only with a tag of the site's list, or with none."""
    garden = "garden = create_blueprint(store=store, verify_token=StaticTokens(['s3cret']), "
    garden += "operations=['create', 'update'])\n"
    names = run_recipes(store=recipe("tags"), garden=garden)
    client, store = names["app"].test_client(), names["store"]
    new = {"name": "Mint"} | ({} if tag is None else {"tag": tag})
    for method, path in (("POST", "/garden/plants"), ("PUT", "/garden/plants/1")):
        response = client.open(path, method=method, json={"id": 1, **new}, headers=BEARER)
        if tag in ("herb", None):
            assert response.json == new
            assert store.add_some([Plant(1, "Mint", tag), Plant(2, "Mint", tag)]) >= {1}
        else:
            assert "tag: Must be one of: herb, tree." in check_error(response, 40000)
            with pytest.raises(BadRequest, match="tag: Must be one of: herb, tree"):
                store.add_some([Plant(2, "Mint"), Plant(3, "Mint", tag)])
            assert len(store) == 0


@pytest.mark.parametrize(
    ("code", "replaced", "requests"),
    [
        (LOGIN, {}, "GET /home 302, GET /plantstore 302"),
        (LOGIN, {"registration": NEST}, "GET /home 302, GET /plantstore 302, GET /inner 302"),
        (HEALTH + LOGIN.replace("is garden", "in (garden, health)"), {}, "GET /healthz 200"),
    ],
)
def test_login_recipe(code: str, replaced: dict[str, str], requests: str) -> None:
    """The hook sends visitors to the login page, and clients never, in whatever blueprint it is."""
    site = run_recipes(code, **replaced)["app"]
    LoginManager(site).user_loader(lambda id: None)
    site.secret_key = "hunter2"
    for name in ("login", "home", "plantstore"):
        site.add_url_rule(f"/{name}", name, lambda: "private")
    check(
        site,
        f"POST /garden/plants s3cret 200, POST /garden/plants 40101, GET /login 200, {requests}, "
        "GET /garden/plants s3cret 405, OPTIONS /garden/plants 200, POST /home 405, "
        "POST /garden/plantz s3cret 404, GET /nothing 404",
    )


def test_small_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    """A receiver is called for each new plant, and a site may say that it is one process."""
    site = run_recipes(recipe("one-process"), recipe("signal"))["app"]
    assert create_rose(site, environ_overrides={"wsgi.multiprocess": True}).status_code == 200
    assert capsys.readouterr().out == "token-1 added Rose\n"


def test_request_ids_recipe(caplog: pytest.LogCaptureFixture) -> None:
    """Each response has one X-Request-ID, that of the site, and the log has the same id."""
    caplog.set_level("INFO", "plantstore")
    client = run_recipes(recipe("request-ids"), recipe("csrf"))["app"].test_client()
    own = {"X-Request-ID": "of-the-client"}
    methods = ["POST", "PUT", "OPTIONS"]
    responses = [client.open("/garden/plants", method=method, headers=own) for method in methods]
    ids = [id for response in responses for id in response.headers.getlist("X-Request-ID")]
    assert len(ids) == len({*ids}) == len(methods)
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    assert [vars(record)["plantstore_request_id"] for record in caplog.records] == ids[:1]


@pytest.mark.parametrize(
    ("config", "times"),
    [
        ("", 0),
        (BASIC_CONFIG + re.sub(".*addHandler.*", "", recipe("log")), 1),
        (BASIC_CONFIG + recipe("log"), 2),
        (ROOT_INFO.replace(LOGGERS, ""), 1),
        (ROOT_INFO.replace(KEEP, "").replace(LOGGERS, ""), 0),
    ],
)
def test_log_recipes(config: str, times: int) -> None:
    """The recipes show each new plant and each refused request; with another handler, twice."""
    # Another process: pytest configures the logging of its own.
    program = shlex.join([sys.executable, "-c", site_code(config, THREE_REQUESTS)])
    shown = run(f"{program} 2>&1", ROOT, PYTHONPATH=str(ROOT))
    assert len(shown.splitlines()) == times * 3
    for text in ("40101: Send ", "Plant 1 was added (", "40004: A plant "):
        assert shown.count(text) == times


@pytest.mark.parametrize("origin", ["https://shop.example", "https://other.example"])
def test_cors_recipe(origin: str) -> None:
    """Pages of the allowed origin can use the store, errors included, and no other path."""
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization, content-type"
    service: dict[str, Any] = {"app": create_app({"PLANTSTORE_TOKENS": "s3cret"})}
    exec(recipe("cors-module").replace("from plantstore.wsgi import app\n", ""), service)
    site = run_recipes(recipe("cors"))["app"].test_client()
    assert "Access-Control-Allow-Origin" not in site.get("/gardens", headers=asked).headers
    sent = {"Access-Control-Allow-Headers": "authorization, content-type"}
    readable = {"Access-Control-Expose-Headers": "Link, Retry-After, X-Request-ID"}
    allowed = {"Access-Control-Allow-Origin": origin}
    for client, path in ((site, "/garden/plants"), (service["app"].test_client(), "/plants")):
        for method, expected in (("OPTIONS", allowed | sent), ("POST", allowed | readable)):
            headers = client.open(path, method=method, json=ROSE, headers=asked).headers
            found = {name: headers.get(name) for name in expected}
            assert found == (expected if "shop" in origin else dict.fromkeys(expected))


def test_rate_limit_recipe() -> None:
    """Above the rate limit the response is 42900 with Retry-After, but not to other methods."""
    client = run_recipes(recipe("limiter"))["app"].test_client()
    for id in range(101):
        response = client.post("/garden/plants", json={"id": id, "name": ""}, headers=BEARER)
        assert response.status_code == (200 if id < 100 else 429)
    assert "100 per 1 minute" in check_error(response, 42900)
    assert 0 < int(response.headers["Retry-After"]) <= 60
    assert client.options("/garden/plants").status_code == 200


def test_pages_list_every_plant_once(pages: dict[str, Any]) -> None:
    """The pages list every plant once, in the order of the ids, for any value of after."""
    client = pages["app"].test_client()
    ids = [-(2**63), *range(1, 111), 2**63 - 1]
    pages["store"].add_some(Plant(id, "Rose") for id in reversed(ids))
    assert listed(client) == [ids[:50], ids[50:100], ids[100:]]
    for after, expected in (("60", ids[61:111]), ("x", ids[:50]), (-(10**30), ids[:50])):
        assert listed(client, f"/plants?after={after}")[0] == expected
    assert listed(client, f"/plants?after={10**30}") == [[]]


def listed(client: FlaskClient, link: str = "/plants") -> list[list[int]]:
    """Return the ids on each page of plants, following the links from one page to the next."""
    page = client.get(link).text
    ids = [int(id) for id in re.findall(r'href="/plants/.*">(.*)</a>', page)]
    following = re.search(r'href="(.*)">Next page', page)
    return [ids, *(listed(client, following[1]) if following else [])]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the site of the recipes for pages and for the form."""
    monkeypatch.chdir(tmp_path)
    Path("templates").mkdir()
    Path("templates/plants.html").write_text(recipe("template"))
    Path("templates/new_plant.html").write_text(recipe("form-template"))
    return run_recipes(recipe("pages"), recipe("form"))


def test_page_of_one_plant(pages: dict[str, Any]) -> None:
    """The page of a plant shows it, and HTML as text; for any other id, the response is 404."""
    pages["store"].add(Plant(7, "<b>Rose</b>", '"&<script>'))
    client, shown = pages["app"].test_client(), "&lt;b&gt;Rose&lt;/b&gt; &#34;&amp;&lt;script&gt;"
    for path in ("/plants/7", "/plants"):
        assert f"</a> {shown} </li> </ul>" in " ".join(client.get(path).text.split())
    for id in ("2", "-1", str(10**30), "x"):
        assert client.get(f"/plants/{id}").status_code == 404


def test_pages_without_a_database(
    pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is unavailable, each page says so, and the form keeps its fields."""
    for method in ("add", "get", "iterate"):
        monkeypatch.setattr(MemoryStore, method, Mock(side_effect=StoreUnavailable("down")))
    client = pages["app"].test_client()
    form = client.post("/plants/new", data=NEW)
    assert 'value="Lily"' in form.text
    for response in (form, client.get("/plants"), client.get("/plants/1")):
        assert (response.status_code, "Try again later" in response.text) == (503, True)
    assert caplog.messages[0] == "The form could not add a plant: down"


# What a visitor enters, and what the form then says.
FAULTS: list[tuple[dict[str, str], str]] = [
    ({"id": "1"}, "A plant with this id already exists."),
    ({"tag": "\0"}, "tag: Must not contain U+0000."),
    *(({"id": id}, "id: Must be an integer") for id in ("", "9" * 5000)),
    ({"id": str(2**63), "name": "\0"}, RANGE),
]


def test_form_says_what_is_wrong(pages: dict[str, Any]) -> None:
    """The form shows each fault and what the visitor has entered, and the plant is not stored."""
    pages["store"].add(ROSE_PLANT)
    for fields, message in FAULTS:
        response = pages["app"].test_client().post("/plants/new", data=NEW | fields)
        page = html.unescape(response.text)
        assert (response.status_code, message in page) == (400, True)
        assert all(f'value="{value}"' in page for value in (NEW | fields).values())
    assert [*pages["store"]] == [ROSE_PLANT]


def test_form_with_csrf_protection(pages: dict[str, Any]) -> None:
    """With Flask-WTF and the guide's line, only the page's own form and clients can add a plant."""
    (line,) = re.findall("`(<input.*csrf_token.*>)`", DOCUMENT)
    template = recipe("form-template").replace("<button>", f"{line}<button>")
    Path("templates/new_plant.html").write_text(template)
    names = run_recipes(recipe("csrf"), recipe("pages"), recipe("form"))
    client = names["app"].test_client()
    assert b"CSRF token is missing" in client.post("/plants/new", data=NEW).data
    assert create_rose(names["app"]).status_code == 200
    token = re.search('name="csrf_token" value="(.*)"', client.get("/plants/new").text)
    assert token is not None
    for new in (NEW, {"id": "8", "name": "Oak", "tag": ""}):
        response = client.post("/plants/new", data=new | {"csrf_token": token[1]})
        assert (response.status_code, response.location) == (302, "/plants")
    assert [*names["store"]] == [ROSE_PLANT, Plant(7, "Lily", "white"), Plant(8, "Oak")]


def test_json_web_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is accepted only if it is signed by this key and algorithm, with all claims."""
    monkeypatch.chdir(tmp_path)
    key = ECKey.generate_key("P-256")
    Path("issuer.pem").write_bytes(key.as_pem(private=False))
    verify = run_recipes(garden=recipe("tokens") + VERIFY_TOKEN_PASSED)["verify_token"]

    def signed(key: ECKey = key, **claims: Any) -> str:
        usual = {"sub": "Flora", "aud": ["shop", "garden"], "exp": int(time.time()) + 3600}
        kept = {name: value for name, value in (usual | claims).items() if value}
        return jwt.encode({"alg": "ES256"}, kept, key)

    assert verify(signed()) == "Flora"
    header, payload, signature = signed().split(".")
    # Signed with HMAC, with the public key as the secret.
    by_hmac = f"eyJhbGciOiJIUzI1NiJ9.{payload}"
    digest = hmac.digest(key.as_pem(private=False), by_hmac.encode(), "sha256")
    claims: list[dict[str, Any]] = [{"aud": ["shop"]}, {"exp": 1}, {"sub": 7}]
    claims += [{name: None} for name in ("aud", "exp", "sub")]
    for refused in (
        *(signed(**wrong) for wrong in claims),
        signed(ECKey.generate_key("P-256")),
        f"{by_hmac}.{urlsafe_b64encode(digest).decode().rstrip('=')}",
        f"eyJhbGciOiJub25lIn0.{payload}.",
        f"{header}.{payload[:-4]}.{signature}",
        "....",
    ):
        assert verify(refused) is None
