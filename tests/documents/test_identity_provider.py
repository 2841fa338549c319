"""Tokens of an identity provider: a small one serves its keys over HTTP, and rotates them."""

import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flask.testing import FlaskClient

from tests.support.log import LINE
from tests.support.readme import VERIFY_TOKEN_PASSED, block, create_rose, recipe, run_recipes
from tests.support.responses import check_error
from tests.support.serving import Server, post
from tests.support.sites import ROSE, TOKEN, new_rose

PAGE = "docs/identity-provider.md"
ISSUER = "https://login.example.org/realms/garden"


class Provider:
    """An identity provider with one key at a time. Its keys have the names 1, 2 and so on."""

    def __init__(self) -> None:
        self.keys = [ec.generate_private_key(ec.SECP256R1())]
        self.broken: bytes | None = None  # What it serves instead of its keys.
        self.reads = 0

    def jwks(self) -> bytes:
        """Return the public key."""
        self.reads += 1
        key = jwt.algorithms.ECAlgorithm.to_jwk(self.keys[-1].public_key(), as_dict=True)
        keys = [{**key, "use": "sig", "kid": str(len(self.keys))}]
        return json.dumps({"keys": keys}).encode() if self.broken is None else self.broken

    def token(self, key: Any = None, alg: Any = "ES256", kid: Any = None, **claims: Any) -> str:
        """Return a token. A claim that is None is left out."""
        usual: dict[str, Any] = {"iss": self.issuer, "aud": "plantstore", "sub": "kiosk"}
        usual |= {"scope": "openid plants.read plants.write", "exp": int(time.time()) + 300}
        payload = {name: value for name, value in (usual | claims).items() if value is not None}
        headers = {"kid": kid or str(len(self.keys))}
        signed = jwt.encode(payload, self.keys[-1] if key is None else key, alg, headers=headers)
        return str(signed)

    issuer = ""


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Run a provider."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            assert self.path == "/realms/garden/protocol/openid-connect/certs"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(provider.jwks())

        def log_message(self, format: str, *args: Any) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}/realms/garden"
        Thread(target=server.serve_forever).start()
        yield provider
        server.shutdown()


def module(provider: Provider, cooldown: float = 0) -> str:
    """Return the module of the page for this provider, whose keys are soon read again."""
    code = recipe("identity").replace(ISSUER, provider.issuer)
    return code.replace("timeout=2", f"timeout=2, cooldown_duration={cooldown}")


@pytest.fixture
def client(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """Return a client of the service of the module, with all operations."""
    monkeypatch.setenv("PLANTSTORE_OPERATIONS", "create,read,list,update,delete")
    names: dict[str, Any] = {"__name__": "identity"}
    exec(module(provider), names)
    client: FlaskClient = names["app"].test_client()
    return client


def authorized(token: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"Authorization": f"Bearer {token}"}


def create(client: FlaskClient, token: str) -> Any:
    """Return the response to a create request with a token."""
    return client.post("/plants", json=ROSE, headers=authorized(token))


def test_scopes_are_rights(client: FlaskClient, provider: Provider) -> None:
    """A client may execute the operations of the scopes of its token, and nothing else."""
    assert create(client, provider.token()).status_code == 200
    reader = authorized(provider.token(scope="plants.read"))
    assert client.get("/plants/1", headers=reader).status_code == 200
    check_error(client.delete("/plants/1", headers=reader), 40301)
    for scope in (None, "", "plants", ["plants.read"], 7):
        check_error(create(client, provider.token(scope=scope)), 40301)


def test_refused_tokens_and_their_reasons(
    client: FlaskClient, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason for each refused token, and the id of its request, but no token."""
    caplog.set_level("INFO", "plantstore")
    assert create(client, provider.token()).status_code == 200
    other = ec.generate_private_key(ec.SECP256R1())
    public, now = "a secret that everybody could know" * 2, int(time.time())
    named = {
        "ExpiredSignatureError": provider.token(exp=now - 60),
        "ImmatureSignatureError": provider.token(nbf=now + 60),
        "InvalidAudienceError": provider.token(aud="shop"),
        "InvalidIssuerError": provider.token(iss="https://login.example.com"),
        "InvalidSignatureError": provider.token(other),
        "InvalidAlgorithmError": provider.token(public, "HS256"),
        "PyJWKClientError": provider.token(kid="9\n9"),
        "DecodeError": TOKEN,
    }
    tokens = [*named.items(), ("InvalidAlgorithmError", provider.token("", "none"))]
    for claim in ("exp", "sub", "aud", "iss"):
        tokens.append(("MissingRequiredClaimError", provider.token(**{claim: None})))
    for reason, token in tokens:
        caplog.clear()
        response = create(client, token)
        check_error(response, 40102)
        first, second = caplog.messages
        id = response.headers["X-Request-ID"]
        assert first == f"Token refused: {reason} (request: {id})"
        assert re.fullmatch(rf"40102: .* request: {id}\)", second)
        assert token not in first + second
    assert all(map(LINE.fullmatch, recipe("identity-log").splitlines()))
    rows = re.findall(r"^\| `(\w+)` \|", Path(PAGE).read_text(), re.M)
    assert {*rows} == {reason for reason, _ in tokens}
    deep = urlsafe_b64encode(b"[" * 200_000).decode().rstrip("=") + ".e30.AA"
    for token in (deep, "....", "e30.e30.", f"{provider.token()}x"):
        check_error(create(client, token), 40102)


def test_keys_of_the_provider(client: FlaskClient, provider: Provider) -> None:
    """Without the keys, a request is 50301. A new key is used at once; old ones for some time."""
    for provider.broken in (b"", b"<h1>Bad gateway"):
        check_error(create(client, provider.token()), 50301)
    provider.broken, provider.reads = None, 0
    assert create(client, old := provider.token()).status_code == 200
    provider.keys.append(other := ec.generate_private_key(ec.SECP256R1()))
    check_error(create(client, old), 40004)
    assert provider.reads == 1
    check_error(create(client, provider.token(other)), 40004)
    assert provider.reads == 2
    check_error(create(client, old), 40102)
    provider.broken = b""
    check_error(create(client, provider.token(other)), 40004)


@pytest.mark.server
def test_unit_starts_the_module(provider: Provider, tmp_path: Path) -> None:
    """The command of the unit serves the module, without tokens in the settings."""
    (tmp_path / "identity.py").write_text(module(provider, cooldown=30))
    (*_, line) = re.findall(r"^ExecStart=(.+)$", block("identity-unit", PAGE), re.M)
    program, *arguments = line.replace("/etc/plantstore", str(tmp_path)).split()
    assert program == "/opt/plantstore/bin/gunicorn"
    with Server(program[-8:], *arguments, "--bind=127.0.0.1:0", PLANTSTORE_TOKENS="") as server:
        request = post(new_rose()).replace(TOKEN.encode(), provider.token().encode())
        assert server.request(request).status == 200
        assert server.request(post(new_rose())).status == 401
        server.wait_for(r"Token refused: DecodeError \(request: [\w-]+\)")
        # Forged tokens are no requests to the provider.
        for number in range(10):
            forged = provider.token(kid=f"forged-{number}").encode()
            assert server.request(request.replace(provider.token().encode(), forged)).status
        assert provider.reads == 1


def test_flask_jwt_extended() -> None:
    """A site with Flask-JWT-Extended accepts its own access tokens, and no refresh tokens."""
    from flask_jwt_extended import create_access_token, create_refresh_token

    names = run_recipes(garden=recipe("jwt-extended") + VERIFY_TOKEN_PASSED)
    site, verify_token = names["app"], names["verify_token"]
    with site.app_context():
        assert verify_token(create_access_token("Flora")) == "Flora"
        assert verify_token(create_refresh_token("Flora")) is None
        assert verify_token("x") is None
    assert create_rose(site).status_code == 401
