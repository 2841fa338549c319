"""deploy/haproxy.cfg, with a real HAProxy in front of real services."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.deploy.test_nginx import HIDDEN, UNKNOWN, check_error, closing, garden, get
from tests.support.front import HAPROXY, Front, haproxy
from tests.support.serving import Gunicorn, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

__all__ = ["closing"]
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(HAPROXY is None, reason="apt-get install haproxy"),
]


@pytest.fixture(scope="module")
def service() -> Iterator[Gunicorn]:
    """Run the service."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": "1", "PLANTSTORE_PROXIES": "1"}
    with Gunicorn(**settings) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(service: Gunicorn) -> Iterator[Front]:
    """Run HAProxy in front of the service, and of an instance that does not run."""
    with haproxy(service.port, free_port()) as proxy:
        yield proxy


def test_service_through_haproxy(service: Gunicorn, proxy: Front) -> None:
    """The service is below a prefix, over TLS; its log has the id and the address of the client."""
    response = proxy.request(garden(post(new_rose())))
    assert (response.status, json.loads(response.body)["name"]) == (200, "Rose")
    assert proxy.request(get("/garden/openapi.json")).status == 200
    assert proxy.request(get("/garden/docs")).status == 200
    with proxy.connect(source="127.0.0.2") as client:
        request = post(b"[]", "X-Forwarded-For: 192.0.2.1", "X-Request-ID: forged")
        response = client.request(garden(request))
    check_error(response, 40003)
    id = response.headers["x-request-id"]
    service.wait_for(rf"40003: .*, address: '127\.0\.0\.2', request: {id}\)")
    line = f'127.0.0.2 "POST /garden/plants" 400 .* {id}'
    wait_until(lambda: re.search(line, proxy.log.read_text()) is not None)


def test_health_and_metrics_are_hidden(proxy: Front) -> None:
    """No spelling of a path leads to the health or the metrics of the service."""
    for path in HIDDEN.split():
        check_error(proxy.request(get(path)), 40401)


def test_one_of_two_instances(service: Gunicorn) -> None:
    """No request fails while one of the instances does not run; without any, the Error is 50300."""
    with haproxy(free_port(), service.port) as proxy:
        for _ in range(20):
            assert proxy.request(garden(post(new_rose()))).status == 200
    with haproxy(free_port(), free_port()) as proxy:
        response = proxy.request(garden(post(new_rose())))
        assert "was not sent" in check_error(response, 50300)
        assert response.headers["retry-after"] == "5"


def test_create_is_sent_to_one_instance(closing: tuple[int, list[bytes]]) -> None:
    """A create that may be stored is not sent again, and the Error says that it may be stored."""
    port, methods = closing
    with haproxy(port, port) as proxy:
        response = proxy.request(garden(post(new_rose())))
        assert UNKNOWN in check_error(response, 50200)
        assert methods.count(b"POST") == 1


def test_instance_that_is_not_ready(service: Gunicorn) -> None:
    """An instance whose store fails gets no requests until /readyz succeeds again."""
    broken = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": "sqlite:////none/plants.db"}
    with Gunicorn(**broken) as other, haproxy(other.port, service.port) as proxy:

        def all_succeed() -> bool:
            responses = [proxy.request(garden(post(new_rose()))) for _ in range(6)]
            return {response.status for response in responses} == {200}

        wait_until(all_succeed)
