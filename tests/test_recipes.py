"""The README's recipes for host sites."""

import hmac
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from joserfc import jwt
from joserfc.jwk import ECKey
from sqlalchemy import text

from plantstore import MemoryStore

from .conftest import check_error
from .readme import block, run_recipes
from .serving import ROOT
from .sites import BEARER, ROSE, ROSE_PLANT, make_site


def test_embedding_recipe() -> None:
    """The recipe embeds the store at /garden/plants."""
    site = run_recipes()
    client = site["app"].test_client()
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200
    assert [*site["store"]] == [ROSE_PLANT]


def test_signal_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe's receiver is called for each new plant of its site."""
    site = run_recipes(block("signal"))
    assert site["app"].test_client().post("/garden/plants", json=ROSE, headers=BEARER).json
    assert capsys.readouterr().out == "token-1 added Rose\n"


def test_csrf_recipe() -> None:
    """The site's forms require a CSRF token, and the store's clients need none."""
    site = run_recipes(block("csrf"))["app"]
    site.add_url_rule("/form", "form", lambda: "sent", methods=["POST"])
    client = site.test_client()
    assert b"CSRF token is missing" in client.post("/form").data
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200


def test_csrf_without_exempt_is_an_error() -> None:
    """Without csrf.exempt, creating a plant is refused with an Error that names the CSRF token."""
    site = run_recipes(block("csrf").replace("csrf.exempt(garden)", ""))["app"]
    response = site.test_client().post("/garden/plants", json=ROSE, headers=BEARER)
    assert "CSRF token is missing" in check_error(response, 40000)


@pytest.mark.parametrize("origin", ["https://shop.example", "https://other.example"])
def test_cors_recipe(origin: str) -> None:
    """Pages of the allowed origin can use the store, errors included, and no other path."""
    headers = {"Access-Control-Request-Method": "POST", "Origin": origin}
    headers["Access-Control-Request-Headers"] = "authorization, content-type"
    site = run_recipes(block("cors"))["app"]
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


def test_rate_limit_recipe() -> None:
    """Above the rate limit the response is 42900 with Retry-After.

    Pages and preflight requests are not limited.
    """
    site = run_recipes(block("limiter"))["app"]
    site.add_url_rule("/", "home", lambda: "home")
    client = site.test_client()
    for id in range(100):
        new = {"id": id, "name": ""}
        assert client.post("/garden/plants", json=new, headers=BEARER).status_code == 200
    response = client.post("/garden/plants", json={"id": 100, "name": ""}, headers=BEARER)
    assert "100 per 1 minute" in check_error(response, 42900)
    assert 0 < int(response.headers["Retry-After"]) <= 60
    assert client.get("/").status_code == client.options("/garden/plants").status_code == 200


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
    names = run_recipes(block("tokens"))
    store, verify_token = names["store"], names["verify_token"]
    site = make_site(store=store, verify_token=verify_token, url_prefix="/garden")
    return site.test_client(), names["store"]


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
    assert "Plant 0 was added (client: 'Flora')" in caplog.messages


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


def test_database_recipe_with_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plants are in the site's database, in a table that its migrations created."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("shop.py").write_text(block("embedding") + block("database"))
    names = run_recipes(block("database"))
    site, store = names["app"], names["store"]
    make_site(site, store=store, name="second", url_prefix="/second")
    client = site.test_client()
    check_error(client.post("/second/plants", json=ROSE, headers=BEARER), 50301)
    for command in ("init", "migrate", "upgrade", "check"):
        subprocess.run([sys.executable, "-m", "flask", "--app=shop", "db", command], check=True)
    assert client.post("/second/plants", json=ROSE, headers=BEARER).status_code == 200
    with site.app_context():
        rows = names["db"].session.execute(text("SELECT id, name, tag FROM plants"))
        assert rows.all() == [tuple(ROSE_PLANT)]
    store.close()
