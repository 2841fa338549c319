"""Authentication: interface section 5, RFC 6750, errors 40101 and 40102."""

from hashlib import sha256
from typing import Any

import pytest
from flask import g
from flask.testing import FlaskClient

from plantstore import MemoryStore, StaticTokens
from tests.support.responses import check_error, create
from tests.support.sites import ROSE, TOKEN, make_site


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


def test_credentials_are_checked_before_method_and_body(client: FlaskClient) -> None:
    """Without credentials the response is 40101, whatever the method, media type or body."""
    check_error(client.get("/plants"), 40101)
    check_error(client.post("/plants", data=b"{"), 40101)
    check_error(client.post("/plants", json=[], content_length=10**12), 40101)


def test_unauthorized_request_stores_nothing(client: FlaskClient) -> None:
    """A request without valid credentials stores no plant: its id stays free."""
    check_error(client.post("/plants", json=ROSE), 40101)
    assert create(client, ROSE).status_code == 200


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
    """A verify_token that returns neither a string nor None accepts no client: 50001."""
    site = make_site(store=store, verify_token=lambda token: result)
    site.testing = True
    with pytest.raises(TypeError, match="must be a name or None"):
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


def test_single_string_as_tokens_raises_type_error() -> None:
    """A single string raises TypeError, so its letters never become tokens."""
    with pytest.raises(TypeError):
        StaticTokens(TOKEN)


def test_static_tokens_never_show_a_token() -> None:
    """Neither the repr nor the attributes of StaticTokens contain a token."""
    tokens = StaticTokens([TOKEN])
    assert repr(tokens) == "<StaticTokens: 1 accepted>"
    assert TOKEN not in str(vars(tokens))
