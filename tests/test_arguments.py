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
from tests.support.sites import BEARER, ROSE, make_blueprint, make_site

ALLOWED = f"operations must have one or more of {', '.join(OPERATIONS)}, and nothing else"
INVALID = ["", " ", "sch\xf6n", "hunter2 b", "hunter2=b", "sha256:", "sha256:hunter2", "hunter2\n"]


async def coroutine_function(token: str) -> str | None:
    """Return the token. A coroutine function is not allowed as verify_token."""
    return token


WRONG: list[Any] = [StaticTokens, coroutine_function, partial(coroutine_function), "s3cret", False]
WRONG.append(type("CoroutineCallable", (), {"__call__": coroutine_function})())


@pytest.mark.parametrize("verify_token", WRONG)
def test_wrong_token_check_is_refused(verify_token: Any) -> None:
    """A verify_token that would accept every token, or fail in each request, is refused."""
    creates: list[Callable[..., Any]] = [create_blueprint, create_app]
    for create in creates:
        with pytest.raises(TypeError, match="^verify_token must be a function, and neither a cla"):
            create(store=MemoryStore(), verify_token=verify_token)


@pytest.mark.parametrize(
    "verify_token",
    [
        *(lambda token: token, partial("{}{}".format, "x"), {"s3cret": "Flora"}.get, str.upper),
        *(ascii, max, Mock(return_value="Flora")),  # max has no signature.
        LocalProxy(lambda: current_app.extensions["verify_token"]),
    ],
    ids=lambda verify_token: type(verify_token).__name__,
)
def test_functions_and_proxies_are_accepted(verify_token: Any) -> None:
    """Anything that can be called with a token is accepted, and a proxy of a store or function."""
    site = Flask("site")
    site.extensions.update(store=MemoryStore(), verify_token=str.upper)
    store: Any = LocalProxy(lambda: current_app.extensions["store"])
    make_site(site, store=store, verify_token=verify_token, operations=["create", "update"])
    response = site.test_client().post("/plants", json=ROSE, headers=BEARER)
    assert (response.status_code, len(site.extensions["store"])) == (200, 1)


def blueprint(options: dict[str, Any]) -> None:
    """Make a blueprint with these options."""
    make_blueprint(**options)


NO_OPERATIONS = [{"operations": it} for it in ("create", [], ["create", "change"])]
# What is called with each of several wrong arguments, and the error that it raises.
WRONG_ARGUMENTS: list[tuple[Any, list[Any], type[Exception], str]] = [
    (blueprint, [{"max_body": 0}], ValueError, "max_body must be at least 1 byte$"),
    (blueprint, [{"name": ""}, {"name": "a.b"}], ValueError, "'name' may not (be|contain)"),
    (blueprint, NO_OPERATIONS, ValueError, ALLOWED),
    (StaticTokens, [[], {}], ValueError, "tokens must contain at least one token"),
    (StaticTokens, ["hunter2", b"hunter2"], TypeError, "tokens must be a list of"),
    (StaticTokens, [["hunter2", it] for it in INVALID], ValueError, "a token is neither a bearer"),
    (StaticTokens, [{"Flora G": "hunter2"}], ValueError, ".* the keys of a mapping are the tokens"),
    # The letters of one text would all be rights.
    (partial(Client, "Flora"), ["create"], TypeError, "operations must be a list of names, such"),
    (SQLStore, [SQLAlchemy(), "sqlite://"], TypeError, "engine must be an .*, such as db.engine"),
]


@pytest.mark.parametrize(("call", "arguments", "error", "message"), WRONG_ARGUMENTS)
def test_wrong_argument_is_refused(
    call: Any, arguments: list[Any], error: type[Exception], message: str
) -> None:
    """Wrong options, tokens, rights and engines are refused with what to write, but no token."""
    for argument in arguments:
        with pytest.raises(error, match=f"^{message}") as caught:
            call(argument)
        assert not any(secret in str(caught.value) for secret in ("hunter2", "Flora"))
