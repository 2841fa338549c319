"""Authentication: RFC 6750, errors 40101, 40102 and 40301."""

from hashlib import sha256
from itertools import product
from typing import Any

import pytest
from flask import Blueprint, Flask, g
from flask.testing import FlaskClient

from plantstore import Client, MemoryStore, StaticTokens, VerifyToken
from plantstore.blueprint import OPERATIONS
from tests.support.responses import ALL, check_error, create, perform
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, TOKEN, make_blueprint, make_site

# Bearer credentials that RFC 6750 does not allow.
MALFORMED = [
    *("Bearer", "Bearer ", f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN},Bearer {TOKEN}"),
    *(f"Bearer \t{TOKEN}", f"Bearer \xa0{TOKEN}", "Bearer a=b", "Bearer =", "Bearer sch\xf6n"),
    *("Bearer \xff", f'Bearer "{TOKEN}"', f"Bearer sha256:{sha256(TOKEN.encode()).hexdigest()}"),
]
UNKNOWN = ["Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}"]
UNKNOWN += [f"Bearer {sha256(TOKEN.encode()).hexdigest()}", "Bearer " + "x" * 8000]
DIGEST = sha256(b"t0k3n").hexdigest()
SHOP = Client("shop", ["read"])


@pytest.mark.parametrize("credentials", [f"Bearer {TOKEN}", f"bEARER    {TOKEN}"])
def test_valid_bearer_token_is_accepted(client: FlaskClient, credentials: str) -> None:
    """A valid token is accepted, with the scheme in any letter case and any number of spaces."""
    headers = {"Authorization": credentials}
    assert client.post("/plants", json=ROSE, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "credentials", [None, "", " ", "Basic czNjcmV0", TOKEN, f"Bearer{TOKEN}", "Bearer, x"]
)
def test_no_bearer_credentials(client: FlaskClient, credentials: str | None) -> None:
    """Without bearer credentials, also with a token elsewhere, the response is 40101."""
    client.set_cookie("access_token", TOKEN)
    headers = {} if credentials is None else {"Authorization": credentials}
    token = {"access_token": TOKEN}
    response = client.post("/plants", query_string=token, json=ROSE | token, headers=headers)
    check_error(response, 40101)
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="plantstore"'
    assert create(client, ROSE).status_code == 200  # Nothing was stored.


@pytest.mark.parametrize("credentials", [*MALFORMED, *UNKNOWN])
def test_invalid_bearer_token_is_unauthorized(
    credentials: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown bearer credentials, and malformed ones for any verify_token, are 40102.

    The log says which of both they are, and shows nothing of them.
    """
    caplog.set_level("INFO", "plantstore")
    accept_all: Any = {"verify_token": str.upper} if credentials in MALFORMED else {}
    environ = {"HTTP_AUTHORIZATION": credentials}
    client = make_site(**accept_all).test_client()
    response = client.post("/plants", json=ROSE, environ_overrides=environ)
    assert TOKEN not in check_error(response, 40102) + caplog.text
    reason = "malformed" if credentials in MALFORMED else "unknown"
    assert caplog.messages[0].startswith(f"40102: The token is {reason}. (client: None, ")
    challenge = response.headers["WWW-Authenticate"]
    assert challenge == 'Bearer realm="plantstore", error="invalid_token"'


def with_rights(*operations: str) -> VerifyToken:
    """Return a token check that gives every token the right to these operations."""
    return lambda token: Client("Flora", operations)


def test_credentials_and_rights_are_checked_first(store: MemoryStore) -> None:
    """Without the right, no operation reads a body, or says whether a plant exists."""
    store.add(ROSE_PLANT)
    client = make_site(store=store, verify_token=with_rights(), operations=ALL).test_client()
    for (method, path, _), id in product(OPERATIONS.values(), ("1", "x")):
        url = f"{path.replace('<plantstore_id>', id)}?limit=0"
        for headers, number in (({}, 40101), (BEARER, 40301)):
            check_error(client.open(url, method=method, headers=headers, data="{"), number)
    assert [*store] == [ROSE_PLANT]


def test_custom_verify_token_and_client_name(store: MemoryStore) -> None:
    """verify_token may be any callable; the client's name that it returns is in g."""
    site = make_site(store=store, verify_token={"t0k3n": "Flora", "empty": ""}.get)
    seen = []

    @site.after_request
    def record(response):  # type: ignore[no-untyped-def]
        seen.append(g.get("plantstore_client"))
        return response

    for id, token in enumerate(["t0k3n", "empty", "other"]):
        headers = {"Authorization": f"Bearer {token}"}
        site.test_client().post("/plants", json={"id": id, "name": ""}, headers=headers)
    assert (seen, len(store)) == (["Flora", "", None], 2)


@pytest.mark.parametrize("result", [True, False, 0, b"Flora"])
def test_wrong_result_of_verify_token(store: MemoryStore, result: Any) -> None:
    """A verify_token that returns no name, no Client and not None accepts no client: 50001."""
    site = make_site(store=store, verify_token=lambda token: result)
    check_error(create(site.test_client(), ROSE), 50001)
    site.testing = True
    with pytest.raises(TypeError, match="must return a name, a Client or None"):
        create(site.test_client(), ROSE)
    assert len(store) == 0


@pytest.mark.parametrize(
    ("tokens", "clients"),
    [
        ([f"sha256:{DIGEST}"], {"t0k3n": "token-1", DIGEST: None, f"sha256:{DIGEST}": None}),
        (["a", f"sha256:{DIGEST.upper()}"], {"a": "token-1", "t0k3n": "token-2", "c": None}),
        ({"a": "Flora", "b": "Fauna", "c": SHOP}, {"a": "Flora", "b": "Fauna", "c": SHOP}),
    ],
)
def test_clients_of_static_tokens(tokens: Any, clients: dict[str, str | None]) -> None:
    """StaticTokens knows the client of each token, or its number, and keeps no token."""
    static = StaticTokens(tokens)
    assert {token: static(token) for token in clients} == clients
    assert repr(static) == f"<StaticTokens: {len(tokens)} accepted>"
    assert TOKEN not in str(vars(StaticTokens([TOKEN])))


@pytest.mark.parametrize("right", OPERATIONS)
def test_token_with_the_right_to_one_operation(
    store: MemoryStore, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A token with the right to one operation gets 40301 for any other one, as the log says."""
    caplog.set_level("INFO", "plantstore")
    store.add(ROSE_PLANT)
    site, parent = Flask("site"), Blueprint("nursery", __name__)
    options = {"verify_token": with_rights(right), "operations": ALL}
    parent.register_blueprint(make_blueprint(store=store, **options))
    site.register_blueprint(parent)
    for name in {*ALL} - {right}:
        message = check_error(perform(site.test_client(), name), 40301)
        assert message == f"This token does not have the right to {name}."
        assert f"40301: {message} (client: 'Flora', " in caplog.text
    assert [*store] == [ROSE_PLANT]
    assert perform(site.test_client(), right).status_code in {200, 204}


def test_view_of_a_site_needs_no_right() -> None:
    """A view that a site adds to the blueprint needs a token, and no right."""
    garden = make_blueprint(verify_token=with_rights())
    garden.get("/seeds")(lambda: "seeds")
    site = Flask("site")
    site.register_blueprint(garden)
    assert site.test_client().get("/seeds").status_code == 401
    assert site.test_client().get("/seeds", headers=BEARER).text == "seeds"
