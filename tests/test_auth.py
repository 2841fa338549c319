"""Who is it: interface section 5, RFC 6750, errors 40101 and 40102."""

from hashlib import sha256
from typing import Any

import pytest
from flask import g
from flask.testing import FlaskClient

from plantstore import MemoryStore, StaticTokens

from .conftest import check_error, create
from .sites import ROSE, TOKEN, make_site


@pytest.mark.parametrize(
    "credentials", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER {TOKEN}", f"Bearer    {TOKEN}"]
)
def test_a_token_lets_in(client: FlaskClient, credentials: str) -> None:
    """An accepted token lets in, the scheme in any letter case and after any spaces."""
    headers = {"Authorization": credentials}
    assert client.post("/plants", json=ROSE, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "credentials",
    [None, "", " ", "Basic !!", "Basic czNjcmV0", "Digest x", TOKEN, f"Bearer{TOKEN}", "Bearer, x"],
)
def test_without_bearer_credentials(client: FlaskClient, credentials: str | None) -> None:
    """No credentials, or those of another scheme, are answered 40101 with a bare challenge."""
    headers = {} if credentials is None else {"Authorization": credentials}
    response = client.post("/plants", json=ROSE, headers=headers)
    check_error(response, 40101)
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="plantstore"'


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
def test_with_bad_bearer_credentials(client: FlaskClient, credentials: str) -> None:
    """Bearer credentials that are malformed or not accepted are answered 40102, and say so."""
    environ = {"HTTP_AUTHORIZATION": credentials}
    response = client.post("/plants", json=ROSE, environ_overrides=environ)
    message = check_error(response, 40102)
    challenge = response.headers["WWW-Authenticate"]
    assert challenge == 'Bearer realm="plantstore", error="invalid_token"'
    assert TOKEN not in message


@pytest.mark.parametrize("credentials", MALFORMED)
def test_a_site_is_asked_of_tokens_alone(store: MemoryStore, credentials: str) -> None:
    """Malformed credentials are refused before the site's own verify_token is asked."""
    site = make_site(store=store, verify_token=lambda token: "anyone")
    environ = {"HTTP_AUTHORIZATION": credentials}
    check_error(site.test_client().post("/plants", json=ROSE, environ_overrides=environ), 40102)


def test_tokens_elsewhere_count_for_nothing(client: FlaskClient) -> None:
    """A token in the query, in the body or in a cookie lets nobody in (RFC 6750 section 2)."""
    client.set_cookie("access_token", TOKEN)
    query = {"access_token": TOKEN}
    response = client.post("/plants", query_string=query, json=ROSE | {"access_token": TOKEN})
    check_error(response, 40101)


def test_credentials_come_first(client: FlaskClient) -> None:
    """Without credentials nothing else is looked at: neither method, nor media type, nor body."""
    check_error(client.get("/plants"), 40101)
    check_error(client.post("/plants", data=b"{"), 40101)
    check_error(client.post("/plants", json=[], content_length=10**12), 40101)


def test_nothing_is_stored_for_strangers(client: FlaskClient) -> None:
    """A creation that was refused for its credentials leaves the id free."""
    check_error(client.post("/plants", json=ROSE), 40101)
    assert create(client, ROSE).status_code == 200


def test_a_site_verifies_its_own_tokens(store: MemoryStore) -> None:
    """Any callable from token to client's name, or None, decides; the name is then in g."""
    site = make_site(store=store, verify_token={"t0k3n": "Flora", "empty": ""}.get)
    seen = []

    @site.after_request
    def note(response):  # type: ignore[no-untyped-def]
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
def test_a_site_answers_with_a_name(store: MemoryStore, result: Any) -> None:
    """A verify_token that returns neither a name nor None lets nobody in: it is a fault to see."""
    site = make_site(store=store, verify_token=lambda token: result)
    site.testing = True
    with pytest.raises(TypeError, match="not a name or None"):
        create(site.test_client(), ROSE)
    site.testing = False
    check_error(create(site.test_client(), ROSE), 50001)
    assert len(store) == 0


def test_digests_stand_for_tokens() -> None:
    """A token given as sha256:<64 hex> is accepted as if given plain, and the digest is not."""
    digest = sha256(b"t0k3n").hexdigest()
    for given in (f"sha256:{digest}", f"sha256:{digest.upper()}"):
        tokens = StaticTokens([given])
        assert tokens("t0k3n") == "token-1"
        assert tokens(digest) is tokens(given) is tokens("other") is None


def test_clients_have_names() -> None:
    """Tokens can be given with the names of their clients; without, they are numbered."""
    assert StaticTokens({"a": "Flora", "b": "Fauna"})("b") == "Fauna"
    assert StaticTokens(["a", "b"])("b") == "token-2"


@pytest.mark.parametrize(
    "token", ["", " ", "sch\xf6n", "a b", "a=b", "sha256:", "sha256:12", "a\n"]
)
def test_what_no_client_could_send_is_no_token(token: str) -> None:
    """A token that can't be a bearer token is refused at once, and not shown."""
    with pytest.raises(ValueError, match="neither a bearer token") as caught:
        StaticTokens(["fine", token])
    assert "fine" not in str(caught.value)


def test_one_string_is_not_many_tokens() -> None:
    """A single string is refused, before each of its letters becomes a token."""
    with pytest.raises(TypeError):
        StaticTokens(TOKEN)


def test_tokens_are_nowhere_to_be_seen() -> None:
    """Neither the repr of the accepted tokens nor their attributes hold a token."""
    tokens = StaticTokens([TOKEN])
    assert repr(tokens) == "<StaticTokens: 1 accepted>"
    assert TOKEN not in str(vars(tokens))
