"""Errors of sites, of stores and of the service itself."""

import logging

import pytest
from flask import Flask
from marshmallow import ValidationError

from plantstore import MemoryStore, StoreUnavailable
from plantstore.errors import ERRORS
from tests.support.responses import check_error, create
from tests.support.sites import BEARER, ROSE, TOKEN, make_site
from tests.support.stores import FailingStore


def test_error_numbers_are_status_and_counter() -> None:
    """Every error number is its status times 100 plus a counter, and fits into int32."""
    for error in ERRORS:
        assert 400 <= error // 100 <= 599
        assert 0 <= error % 100 < 100


@pytest.mark.parametrize("before", [True, False])
def test_site_page_at_the_same_path(store: MemoryStore, before: bool) -> None:
    """A host site's page at the same path is served; other methods reach the blueprint."""
    site = Flask("site", static_folder=None)
    if before:
        make_site(site, store=store, url_prefix="/garden")
    site.add_url_rule("/garden/plants", "page", lambda: "my plants")
    if not before:
        make_site(site, store=store, url_prefix="/garden")
    client = site.test_client()
    assert client.get("/garden/plants").data == b"my plants"
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200


def test_validation_error_of_the_site_is_a_fault(store: MemoryStore) -> None:
    """A ValidationError from the host site's code is 50001, and its message is not sent."""

    def verify_token(token: str) -> str:
        raise ValidationError({"token": [f"bad {token}"]})

    site = make_site(store=store, verify_token=verify_token)
    message = check_error(create(site.test_client(), ROSE), 50001)
    assert TOKEN not in message


@pytest.mark.parametrize("setting", ["TESTING", "DEBUG"])
def test_internal_error_is_raised_in_debug_and_testing(setting: str) -> None:
    """In testing and debug mode an unexpected exception is raised."""
    site = make_site(store=FailingStore(ZeroDivisionError()))
    site.config[setting] = True
    with pytest.raises(ZeroDivisionError):
        create(site.test_client(), ROSE)


def test_store_unavailable_has_retry_after(caplog: pytest.LogCaptureFixture) -> None:
    """StoreUnavailable is 50301 with Retry-After; only the log has the engine's message."""
    client = make_site(store=FailingStore(StoreUnavailable("refused\nby x"))).test_client()
    response = create(client, ROSE)
    assert "refused" not in check_error(response, 50301)
    assert int(response.headers["Retry-After"]) > 0
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("50301: The store is unavailable: refused by x (")


def test_shared_store_with_several_processes() -> None:
    """A store that processes share accepts plants from several processes."""

    class SharedStore(MemoryStore):
        one_process = False

    client = make_site(store=SharedStore()).test_client()
    assert create(client, ROSE, environ_overrides={"wsgi.multiprocess": True}).status_code == 200
