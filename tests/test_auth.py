"""Authentication: interface section 5, RFC 6750, errors 40101 and 40102."""

import re
import zlib
from hashlib import sha256
from typing import Any

import pytest
from flask import Blueprint, Flask, g
from flask.testing import FlaskClient

from plantstore import (
    Client,
    MemoryStore,
    StaticTokens,
    VerifyToken,
    create_app,
    create_blueprint,
)
from plantstore.auth import make_token
from tests.support.responses import check_error, create
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, TOKEN, make_site

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    "credentials", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER {TOKEN}", f"Bearer    {TOKEN}"]
)
def test_valid_bearer_token_is_accepted(client: FlaskClient, credentials: str) -> None:
    """A valid token is accepted, with the scheme in any letter case and any number of spaces."""
    headers = {"Authorization": credentials}
    assert client.post("/plants", json=ROSE, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "credentials",
    [None, "", " ", "Basic !!", "Basic czNjcmV0", "Digest x", TOKEN, f"Bearer{TOKEN}", "Bearer, x"],
)
def test_missing_bearer_credentials_are_unauthorized(
    client: FlaskClient, credentials: str | None
) -> None:
    """Without bearer credentials the response is 40101, with a challenge that names no error."""
    headers = {} if credentials is None else {"Authorization": credentials}
    response = client.post("/plants", json=ROSE, headers=headers)
    check_error(response, 40101)
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="plantstore"'
    assert create(client, ROSE).status_code == 200  # Nothing was stored.


# Bearer credentials that RFC 6750 does not allow.
MALFORMED = [
    "Bearer",
    "Bearer ",
    f"Bearer {TOKEN} {TOKEN}",
    f"Bearer {TOKEN},Bearer {TOKEN}",
    f"Bearer \t{TOKEN}",
    f"Bearer \xa0{TOKEN}",
    "Bearer a=b",
    "Bearer =",
    "Bearer sch\xf6n",
    "Bearer \xff",
    f'Bearer "{TOKEN}"',
    f"Bearer sha256:{sha256(TOKEN.encode()).hexdigest()}",
]


@pytest.mark.parametrize(
    "credentials",
    [
        *MALFORMED,
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {sha256(TOKEN.encode()).hexdigest()}",
        "Bearer " + "x" * 8000,
    ],
)
def test_invalid_bearer_token_is_unauthorized(client: FlaskClient, credentials: str) -> None:
    """Malformed or unknown bearer credentials are 40102; the challenge says invalid_token."""
    environ = {"HTTP_AUTHORIZATION": credentials}
    response = client.post("/plants", json=ROSE, environ_overrides=environ)
    message = check_error(response, 40102)
    challenge = response.headers["WWW-Authenticate"]
    assert challenge == 'Bearer realm="plantstore", error="invalid_token"'
    assert TOKEN not in message


@pytest.mark.parametrize("credentials", MALFORMED)
def test_malformed_credentials_never_reach_verify_token(
    store: MemoryStore, credentials: str
) -> None:
    """Malformed credentials are refused without a call of the site's verify_token."""
    site = make_site(store=store, verify_token=lambda token: "anyone")
    environ = {"HTTP_AUTHORIZATION": credentials}
    check_error(site.test_client().post("/plants", json=ROSE, environ_overrides=environ), 40102)


def test_token_in_query_body_or_cookie_is_ignored(client: FlaskClient) -> None:
    """A token in the query, in the body or in a cookie is not accepted (RFC 6750 section 2)."""
    client.set_cookie("access_token", TOKEN)
    query = {"access_token": TOKEN}
    response = client.post("/plants", query_string=query, json=ROSE | {"access_token": TOKEN})
    check_error(response, 40101)


def test_credentials_are_checked_before_the_body(client: FlaskClient) -> None:
    """Without credentials the response is 40101, whatever the media type or body."""
    check_error(client.post("/plants", data=b"{"), 40101)
    check_error(client.post("/plants", json=[], content_length=10**12), 40101)


def test_custom_verify_token_and_client_name(store: MemoryStore) -> None:
    """verify_token may be any callable; the client's name that it returns is in g."""
    site = make_site(store=store, verify_token={"t0k3n": "Flora", "empty": ""}.get)
    seen = []

    @site.after_request
    def record(response):  # type: ignore[no-untyped-def]
        seen.append(g.get("plantstore_client"))
        return response

    client = site.test_client()
    for id, token in enumerate(["t0k3n", "empty", "other"]):
        client.post(
            "/plants", json={"id": id, "name": ""}, headers={"Authorization": f"Bearer {token}"}
        )
    assert seen == ["Flora", "", None]
    assert len(store) == 2


@pytest.mark.parametrize("result", [True, False, 0, b"Flora"])
def test_verify_token_with_a_wrong_return_type_accepts_no_client(
    store: MemoryStore, result: Any
) -> None:
    """A verify_token that returns no name, no Client and not None accepts no client: 50001."""
    site = make_site(store=store, verify_token=lambda token: result)
    site.testing = True
    with pytest.raises(TypeError, match="must return a name, a Client or None"):
        create(site.test_client(), ROSE)
    site.testing = False
    check_error(create(site.test_client(), ROSE), 50001)
    assert len(store) == 0


def test_sha256_digest_configures_a_token() -> None:
    """With sha256:<64 hex> the token itself is accepted, and the digest is not."""
    digest = sha256(b"t0k3n").hexdigest()
    for given in (f"sha256:{digest}", f"sha256:{digest.upper()}"):
        tokens = StaticTokens([given])
        assert tokens("t0k3n") == "token-1"
        assert tokens(digest) is tokens(given) is tokens("other") is None


def test_client_names_of_static_tokens() -> None:
    """Each token may have the name of its client; without names, clients are numbered."""
    assert StaticTokens({"a": "Flora", "b": "Fauna"})("b") == "Fauna"
    assert StaticTokens(["a", "b"])("b") == "token-2"


@pytest.mark.parametrize(
    "token", ["", " ", "sch\xf6n", "a b", "a=b", "sha256:", "sha256:12", "a\n"]
)
def test_invalid_static_token_raises_value_error(token: str) -> None:
    """A configured token that is no bearer token raises ValueError; no token is in the message."""
    with pytest.raises(ValueError, match="neither a bearer token") as caught:
        StaticTokens(["valid", token])
    assert "valid" not in str(caught.value)


def test_static_tokens_never_show_a_token() -> None:
    """Neither the repr nor the attributes of StaticTokens contain a token."""
    tokens = StaticTokens([TOKEN])
    assert repr(tokens) == "<StaticTokens: 1 accepted>"
    assert TOKEN not in str(vars(tokens))


# A request for each operation.
REQUESTS = {
    "create": ("POST", "/plants"),
    "read": ("GET", "/plants/1"),
    "list": ("GET", "/plants"),
    "update": ("PUT", "/plants/1"),
    "delete": ("DELETE", "/plants/1"),
}


def with_rights(*operations: str) -> VerifyToken:
    """Return a token check that gives every token the right to these operations."""
    return lambda token: Client("Flora", operations)


@pytest.mark.parametrize("right", REQUESTS)
def test_token_with_the_right_to_one_operation(store: MemoryStore, right: str) -> None:
    """A token with the right to one operation gets 40301 for any other one, and changes nothing."""
    store.add(ROSE_PLANT)
    operations = [*REQUESTS]
    client = make_site(
        store=store, verify_token=with_rights(right), operations=operations
    ).test_client()
    for name, (method, path) in REQUESTS.items():
        if name != right:
            response = client.open(
                path, method=method, json={"id": 7, "name": "Lily"}, headers=BEARER
            )
            message = check_error(response, 40301)
            assert message == f"This token does not have the right to {name}."
    assert [*store] == [ROSE_PLANT]
    method, path = REQUESTS[right]
    response = client.open(path, method=method, json={"id": 7, "name": "Lily"}, headers=BEARER)
    assert response.status_code in {200, 204}


def test_right_is_checked_before_the_body(store: MemoryStore) -> None:
    """Without the right to an operation, the body is not read: any body gets 40301."""
    site = make_site(store=store, verify_token=with_rights())
    check_error(site.test_client().post("/plants", data=b"{", headers=BEARER), 40301)


def test_view_of_a_site_needs_no_right() -> None:
    """A view that a site adds to the blueprint needs a token, and no right."""
    garden = create_blueprint(store=MemoryStore(), verify_token=with_rights())
    garden.get("/seeds")(lambda: "seeds")
    site = Flask("site")
    site.register_blueprint(garden)
    assert site.test_client().get("/seeds").status_code == 401
    assert site.test_client().get("/seeds", headers=BEARER).text == "seeds"


def test_log_names_the_client_without_the_right(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the client whose token does not have the right."""
    caplog.set_level("INFO", "plantstore")
    create(make_site(store=store, verify_token=with_rights("read")).test_client(), ROSE)
    message = "40301: This token does not have the right to this operation. (client: 'Flora', "
    assert caplog.messages[0].startswith(message)


def test_rights_in_nested_blueprints(store: MemoryStore) -> None:
    """The rights are checked as well if the blueprint is nested in one of the site."""
    site, parent = Flask(__name__), Blueprint("nursery", __name__, url_prefix="/nursery")
    parent.register_blueprint(create_blueprint(store=store, verify_token=with_rights("read")))
    site.register_blueprint(parent)
    check_error(site.test_client().post("/nursery/plants", json=ROSE, headers=BEARER), 40301)


def test_static_tokens_with_rights() -> None:
    """StaticTokens gives each token its client: a name, or a Client with rights."""
    shop = Client("shop", ["read"])
    tokens = StaticTokens({"all": "greenhouse", "r3ad": shop})
    assert (tokens("all"), tokens("r3ad"), tokens("other")) == ("greenhouse", shop, None)


def test_token_has_a_prefix_and_a_checksum() -> None:
    """A new token is plt_, 43 random characters of base 62, and their CRC-32 in base 62."""
    made = {make_token() for _ in range(100)}
    assert len(made) == 100
    for token in made:
        random, checksum = re.fullmatch("plt_([0-9A-Za-z]{43})([0-9A-Za-z]{6})", token).groups()  # type: ignore[union-attr]
        number = 0
        for digit in checksum:
            number = number * 62 + BASE62.index(digit)
        assert number == zlib.crc32(random.encode())


def test_log_tells_typos_from_revoked_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """The log says whether a refused token was mistyped, revoked or is of another form."""
    caplog.set_level("INFO", "plantstore")
    client = create_app({"PLANTSTORE_TOKENS": "s3cret"}).test_client()
    made = make_token()
    last = "a" if made[-1] != "a" else "b"
    for token, reason in (
        (made, "The token was revoked, has expired, or is one of another service."),
        (made[:-1] + last, "The token was mistyped or cut: its checksum is wrong."),
        (made[:-1], "The token was mistyped or cut: its checksum is wrong."),
        ("plt_", "The token was mistyped or cut: its checksum is wrong."),
        ("other", "The token is unknown."),
        ("a=b", "The token is malformed."),
    ):
        caplog.clear()
        headers = {"Authorization": f"Bearer {token}"}
        check_error(client.post("/plants", json=ROSE, headers=headers), 40102)
        assert caplog.messages[0].startswith(f"40102: {reason} (client: None, ")
        assert token not in caplog.text.replace("plantstore", "")
