"""Wrong arguments are refused by the call, with a message that says what was expected."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine
from werkzeug.local import LocalProxy

from plantstore import MemoryStore, SQLStore, StaticTokens, create_app, create_blueprint, open_store
from tests.support.sites import BEARER, ROSE

STORE = "store must be a Store, such as MemoryStore() or open_store(url), not "
VERIFY = (
    "verify_token must be a function that takes a token and returns a name, a Client or None, not "
)
COROUTINE = "verify_token must not be a coroutine function"
TOKENS = (
    "tokens must be a list of tokens, or a mapping with tokens as its keys and names as its values"
)


async def coroutine_function(token: str) -> str | None:
    """Return the token. A coroutine function is not allowed as verify_token."""
    return token


class CoroutineCallable:
    """An object that is called like a coroutine function."""

    async def __call__(self, token: str) -> str | None:
        """Return the token."""
        return token


class Token(str):
    """A class, where a function is expected."""


@pytest.mark.parametrize("create", [create_blueprint, create_app])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"store": "sqlite:///hunter2"}, TypeError, STORE + "str"),
        ({"store": MemoryStore}, TypeError, STORE + "the class MemoryStore"),
        ({"store": {}}, TypeError, STORE + "dict"),
        ({"verify_token": "hunter2"}, TypeError, VERIFY + "str"),
        ({"verify_token": ["hunter2"]}, TypeError, VERIFY + "list"),
        ({"verify_token": StaticTokens}, TypeError, VERIFY + "the class StaticTokens"),
        ({"verify_token": Token}, TypeError, VERIFY + "the class Token"),
        ({"verify_token": lambda: "x"}, TypeError, VERIFY + "function"),
        ({"verify_token": lambda first, second: "x"}, TypeError, VERIFY + "function"),
        ({"verify_token": coroutine_function}, TypeError, COROUTINE),
        ({"verify_token": CoroutineCallable()}, TypeError, COROUTINE),
    ],
)
def test_wrong_store_or_verify_token_is_refused(
    create: Callable[..., Any], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A store that is not a Store, or a verify_token that is not a function, is refused."""
    right = {"store": MemoryStore(), "verify_token": StaticTokens(["t"])}
    right = right if create is create_blueprint else {}  # No setting of create_app is read before.
    with pytest.raises(error) as caught:
        create(**{**right, **arguments})
    assert str(caught.value) == message


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

NAMES = 'a collection of names, such as ["create", "read"]'
ALLOWED = "must have one or more of create, read, list, delete, and nothing else"


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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_body": "10"}, TypeError, "max_body must be an int, a number of bytes, not str"),
        ({"max_body": 1.5}, TypeError, "max_body must be an int, a number of bytes, not float"),
        ({"max_body": True}, TypeError, "max_body must be an int, a number of bytes, not bool"),
        ({"max_body": None}, TypeError, "max_body must be an int, a number of bytes, not NoneType"),
        ({"max_body": 0}, ValueError, "max_body must be at least 1 byte"),
        ({"max_body": -1}, ValueError, "max_body must be at least 1 byte"),
        ({"name": 5}, TypeError, "name must be a string, not int"),
        ({"name": ""}, ValueError, "'name' may not be empty."),
        ({"name": "a.b"}, ValueError, "'name' may not contain a dot '.' character."),
        ({"operations": "create"}, TypeError, f"operations must be {NAMES}, not str"),
        ({"operations": None}, TypeError, f"operations must be {NAMES}, not NoneType"),
        (
            {"operations": iter(["create"])},
            TypeError,
            f"operations must be {NAMES}, not list_iterator",
        ),
        ({"operations": []}, ValueError, f"operations {ALLOWED}"),
        ({"operations": ["create", "update"]}, ValueError, f"operations {ALLOWED}"),
        ({"operations": [["create"]]}, ValueError, f"operations {ALLOWED}"),
    ],
)
def test_wrong_max_body_name_or_operations_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Wrong arguments max_body, name or operations of a blueprint are refused."""
    with pytest.raises(error) as caught:
        create_blueprint(store=MemoryStore(), verify_token=StaticTokens(["t"]), **arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("config", ["PLANTSTORE_TOKENS=t", ["t"], Flask("site")])
def test_config_must_be_a_mapping(config: Any) -> None:
    """A config of create_app that is not a mapping is refused."""
    with pytest.raises(TypeError, match="^config must be a mapping, not "):
        create_app(config)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ([], ValueError, "tokens must contain at least one token"),
        ({}, ValueError, "tokens must contain at least one token"),
        (iter([]), ValueError, "tokens must contain at least one token"),
        (None, TypeError, TOKENS + ", not NoneType"),
        (5, TypeError, TOKENS + ", not int"),
        ("hunter2", TypeError, TOKENS + ", not str"),
        (b"hunter2", TypeError, TOKENS + ", not bytes"),
        ([5], TypeError, "a token must be a string, not int"),
        ([b"hunter2"], TypeError, "a token must be a string, not bytes"),
        ([None], TypeError, "a token must be a string, not NoneType"),
        ([["hunter2"]], TypeError, "a token must be a string, not list"),
        ({5: "Flora"}, TypeError, "a token must be a string, not int"),
        ({"t": None}, TypeError, "a client must be a name or a Client, not NoneType"),
        ({"t": 5}, TypeError, "a client must be a name or a Client, not int"),
    ],
)
def test_wrong_tokens_are_refused(tokens: Any, error: type[Exception], message: str) -> None:
    """StaticTokens refuses arguments of other types, and an empty set of tokens."""
    with pytest.raises(error) as caught:
        StaticTokens(tokens)
    assert str(caught.value) == message


def test_reversed_mapping_of_tokens_is_refused() -> None:
    """A mapping from names to tokens is refused; the message says what its keys are."""
    with pytest.raises(
        ValueError, match="the keys of a mapping are the tokens, its values the names"
    ) as caught:
        StaticTokens({"Flora Green": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "Flora" not in str(caught.value)


def test_sql_store_refuses_the_flask_sqlalchemy_object() -> None:
    """SQLStore refuses the Flask-SQLAlchemy object, and names db.engine and db.metadata."""
    db = SQLAlchemy()
    engine = create_engine("sqlite://")
    for arguments, message in (
        ((db,), "engine must be an SQLAlchemy Engine, such as db.engine, not SQLAlchemy"),
        (("sqlite://",), "engine must be an SQLAlchemy Engine, such as db.engine, not str"),
        (
            (engine, db),
            "metadata must be an SQLAlchemy MetaData, such as db.metadata, not SQLAlchemy",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            SQLStore(*arguments)
        assert str(caught.value) == message
    engine.dispose()


def test_open_store_refuses_another_type() -> None:
    """open_store refuses a URL that is not a string."""
    with pytest.raises(TypeError, match="^url must be the URL of a store, not NoneType$"):
        open_store(None)  # type: ignore[arg-type]
