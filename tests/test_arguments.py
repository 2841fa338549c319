"""Wrong arguments that would do harm silently are refused by the call."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy
from werkzeug.local import LocalProxy

from plantstore import Client, MemoryStore, SQLStore, StaticTokens, create_app, create_blueprint
from plantstore.blueprint import OPERATIONS
from tests.support.sites import BEARER, ROSE


async def coroutine_function(token: str) -> str | None:
    """Return the token. A coroutine function is not allowed as verify_token."""
    return token


class CoroutineCallable:
    """An object that is called like a coroutine function."""

    async def __call__(self, token: str) -> str | None:
        """Return the token."""
        return token


@pytest.mark.parametrize("create", [create_blueprint, create_app])
@pytest.mark.parametrize(
    "verify_token",
    [
        *(StaticTokens, str, coroutine_function, partial(coroutine_function), CoroutineCallable()),
        *("s3cret", ["s3cret"], {}, False),
    ],
)
def test_wrong_token_check_is_refused(create: Callable[..., Any], verify_token: Any) -> None:
    """A verify_token that would accept every token, or fail in each request, is refused."""
    with pytest.raises(TypeError, match="^verify_token must be a function, and neither a class"):
        create(store=MemoryStore(), verify_token=verify_token)


def test_blueprint_without_a_token_check_is_refused() -> None:
    """A verify_token of None, such as that of a missing setting, never opens a site."""
    with pytest.raises(TypeError, match="^verify_token must be a function, and neither a class"):
        create_blueprint(store=MemoryStore(), verify_token=None)  # type: ignore[arg-type]


def verify(token: str, prefix: str = "") -> str | None:
    """Return the name of a client."""
    return prefix + token


VERIFIERS: dict[str, Any] = {
    "lambda": lambda token: token,
    "partial": partial(verify, prefix="x"),
    "method of dict": {"s3cret": "Flora"}.get,
    "method of str": str.upper,
    "built-in function": ascii,
    "built-in function without a signature": max,
    "mock": Mock(return_value="Flora"),
    "proxy": LocalProxy(lambda: current_app.extensions["verify_token"]),
}


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_functions_and_proxies_are_accepted(verifier: str) -> None:
    """Anything that can be called with a token is accepted, and a proxy of a store or function."""
    site = Flask("site")
    site.extensions.update(store=MemoryStore(), verify_token=verify)
    store: Any = LocalProxy(lambda: current_app.extensions["store"])
    garden = create_blueprint(store=store, verify_token=VERIFIERS[verifier])
    site.register_blueprint(garden)
    response = site.test_client().post("/plants", json=ROSE, headers=BEARER)
    assert (response.status_code, len(site.extensions["store"])) == (200, 1)


ALLOWED = f"operations must have one or more of {', '.join(OPERATIONS)}, and nothing else"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_body": 0}, "max_body must be at least 1 byte"),
        ({"max_body": -1}, "max_body must be at least 1 byte"),
        ({"name": ""}, "'name' may not be empty."),
        ({"name": "a.b"}, "'name' may not contain a dot '.' character."),
        ({"operations": "create"}, ALLOWED),
        ({"operations": []}, ALLOWED),
        ({"operations": ["create", "change"]}, ALLOWED),
    ],
)
def test_wrong_value_is_refused(arguments: dict[str, Any], message: str) -> None:
    """A limit of bodies, a name or operations that a blueprint cannot have are refused."""
    with pytest.raises(ValueError, match="must|may") as caught:
        create_blueprint(store=MemoryStore(), verify_token=StaticTokens(["t"]), **arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("tokens", [[], {}, iter([])])
def test_no_token_is_refused(tokens: Any) -> None:
    """StaticTokens refuses an empty set of tokens."""
    with pytest.raises(ValueError, match="^tokens must contain at least one token$"):
        StaticTokens(tokens)


@pytest.mark.parametrize("tokens", ["hunter2", b"hunter2"])
def test_single_string_is_refused(tokens: Any) -> None:
    """A single string, where a list is meant, is refused: each of its letters would be an item."""
    with pytest.raises(TypeError, match="^tokens must be a list of tokens, or a mapping") as caught:
        StaticTokens(tokens)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(TypeError, match="^operations must be a list of names, such as "):
        Client("Flora", operations="create")


def test_reversed_mapping_of_tokens_is_refused() -> None:
    """A mapping from names to tokens is refused; the message says what its keys are."""
    with pytest.raises(
        ValueError, match="the keys of a mapping are the tokens, its values the names"
    ) as caught:
        StaticTokens({"Flora Green": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "Flora" not in str(caught.value)


def test_sql_store_refuses_the_flask_sqlalchemy_object() -> None:
    """SQLStore refuses the Flask-SQLAlchemy object, and names db.engine."""
    for engine in (SQLAlchemy(), "sqlite://"):
        with pytest.raises(TypeError, match="^engine must be an SQLAlchemy Engine, such as db.eng"):
            SQLStore(engine)  # type: ignore[arg-type]
