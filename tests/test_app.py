"""The standalone service: paths that it does not have, and trusted hosts."""

from itertools import product

import pytest
from flask import Flask

from plantstore import create_app
from plantstore.blueprint import OPERATIONS
from tests.support.responses import check_error
from tests.support.sites import BEARER, ROSE, TOKEN


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/plants/", "/plants//", "/x//plants", "/plants/x/y", "/Plants", "/plants//1"),
        *("/plants/1/", "/plants/a%2Fb", "/static/x", "/favicon.ico", "/%00"),
    ],
)
def test_not_found(path: str) -> None:
    """Every other path of the standalone service is 40401, with any method."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app(config).test_client()
    for method, headers in product(("GET", "POST", "OPTIONS", "FOO"), ({}, BEARER)):
        check_error(client.open(path, method=method, json=ROSE, headers=headers), 40401)


def test_untrusted_host_is_refused(app: Flask) -> None:
    """In the standalone service a Host header that is not in TRUSTED_HOSTS is 40005."""
    app.config["TRUSTED_HOSTS"] = ["example.com"]
    message = check_error(app.test_client().post("/plants", headers={"Host": "hunter2"}), 40005)
    assert "hunter2" not in message
