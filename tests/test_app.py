"""The standalone service: paths that it does not have, and trusted hosts."""

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plantstore import create_app
from tests.support.responses import check_error
from tests.support.sites import BEARER, ROSE, TOKEN


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/plants/", "/plants//", "/x//plants", "/plants/1", "/plants/x/y", "/Plants"),
        *("/static/x", "/favicon.ico", "/%00"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "FOO"])
def test_not_found(client: FlaskClient, path: str, method: str) -> None:
    """Every other path of the standalone service is 40401, and the message names /plants."""
    for headers in ({}, BEARER):
        response = client.open(path, method=method, json=ROSE, headers=headers)
        assert "POST /plants" in check_error(response, 40401)


def test_message_of_not_found_names_what_exists() -> None:
    """The message of 40401 names the requests of the operations that are enabled, and no other."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": "read list"}
    message = check_error(create_app(config).test_client().get("/"), 40401)
    expected = "The service has GET /plants/{id}, GET /plants."
    assert message == f"There is nothing at this path. {expected}"


def test_untrusted_host_is_refused(app: Flask) -> None:
    """In the standalone service a Host header that is not in TRUSTED_HOSTS is 40005."""
    app.config["TRUSTED_HOSTS"] = ["example.com"]
    message = check_error(app.test_client().post("/plants", headers={"Host": "hunter2"}), 40005)
    assert "hunter2" not in message
