"""deploy/nginx.conf, with a real nginx in front of a real service."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from plantstore.errors import ERRORS
from plantstore.server.worker._refusals import _REFUSALS
from tests.support.front import NGINX, Front, front
from tests.support.serving import ROOT, Gunicorn, Response, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.deploy, pytest.mark.skipif(NGINX is None, reason="apt-get install nginx")]

ID = "x-request-id"


@pytest.fixture(scope="module")
def service() -> Iterator[Gunicorn]:
    """Run the service."""
    options = ("--access-logfile=-", "--forwarded-allow-ips=127.0.0.1")
    settings = {"PLANTSTORE_METRICS": "1", "PLANTSTORE_PROXIES": "1"}
    with Gunicorn(*options, PLANTSTORE_TOKENS=TOKEN, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(service: Gunicorn) -> Iterator[Front]:
    """Run nginx in front of the service."""
    with front(service.port) as proxy:
        yield proxy


def garden(request: bytes) -> bytes:
    """Return a request for the path below the prefix of nginx."""
    return request.replace(b" /", b" /garden/", 1)


def get(path: str) -> bytes:
    """Return the bytes of a request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def check_error(response: Response, number: int) -> str:
    """Check that a response is an Error with an id; return its message."""
    assert response.status == number // 100
    assert response.headers["content-type"] == "application/json"
    assert response.headers[ID]
    error = json.loads(response.body)
    assert error.keys() == {"error", "message"}
    assert error["error"] == number
    return str(error["message"])


def test_service_through_nginx(proxy: Front) -> None:
    """The service is below a prefix, over TLS: its plants, its Errors, its page, its document."""
    response = proxy.request(garden(post(new_rose())))
    assert (response.status, json.loads(response.body)["name"]) == (200, "Rose")
    document = json.loads(proxy.request(get("/garden/openapi.json")).body)
    assert document["servers"] == [{"url": "."}]
    assert proxy.request(get("/garden/docs")).status == 200
    response = proxy.request(garden(post(b"[]")))
    assert "JSON object" in check_error(response, 40003)
    check_error(proxy.request(garden(post(b"")).replace(TOKEN.encode(), b"x")), 40102)


def test_page_that_is_hidden(service: Gunicorn) -> None:
    """With the change of docs/operating.md, nothing leads to the page and to the document."""
    text = (ROOT / "docs" / "operating.md").read_text()
    (change,) = re.findall(r"replace `(.*)` by `(.*)`", text)
    with front(service.port, dict([change])) as proxy:
        for path in ("docs", "docs/docs.js", "openapi.json", "%64ocs", "x/../docs", "/docs"):
            check_error(proxy.request(get(f"/garden/{path}")), 40401)
        assert proxy.request(garden(post(new_rose()))).status in {200, 400}


def test_service_without_a_prefix(service: Gunicorn) -> None:
    """With / instead of /garden/, the service is at the root, and the health stays hidden."""
    # This location would be there twice.
    root = {"location / {\n            return 404;\n        }": "", "/garden/": "/"}
    with front(service.port, root) as proxy:
        assert proxy.request(post(new_rose())).status == 200
        check_error(proxy.request(get("/readyz")), 40401)


def test_address_and_id_in_each_log(service: Gunicorn, proxy: Front) -> None:
    """Each log has the address and one id of a request. A client can choose neither."""
    request = garden(post(b"{}", "X-Forwarded-For: 192.0.2.1", "X-Request-ID: forged"))
    with proxy.connect(source="127.0.0.2") as client:
        response = client.request(request)
    assert response.status == 400
    id = response.headers[ID]
    assert re.fullmatch("[0-9a-f]{32}", id)
    service.wait_for(rf"40003: .*, address: '127\.0\.0\.2', request: {id}\)")
    service.wait_for(rf'(?m)\] 127\.0\.0\.2 "POST /plants HTTP/1\.\d" 400 .* {id}$')
    line = f'127.0.0.2 "POST /garden/plants" 400 .* {id}'
    wait_until(lambda: re.search(line, proxy.log.read_text()) is not None)
    assert TOKEN not in service.log + proxy.log.read_text()


HIDDEN = """
/garden/metrics /garden/healthz /garden/readyz /garden/readyz?x /garden//readyz /garden/./readyz
/garden/plants/../readyz /garden/%72eadyz /garden/plants/%2e%2e/metrics /garden/%2e/metrics
/readyz /garden /
"""


def test_health_and_metrics_are_hidden(proxy: Front) -> None:
    """No spelling of a path leads to the health or the metrics of the service."""
    for path in HIDDEN.split():
        assert check_error(proxy.request(get(path)), 40401) == ERRORS[40401][0], path


BIG = garden(post(b'{"id":1,"name":"%s"}' % (b"x" * 65536)))


REFUSED = [
    (get("/garden/plants").replace(b"GET", b"g\0t"), 40000),
    (get("/garden/plants").replace(b"Host", b"X"), 40000),
    (get("/garden/plants").replace(b"localhost", b"a\0b"), 40000),
    (get("/garden/plants").replace(b"GET", b"TRACE"), 40501),
    (BIG, 41301),
    (get("/garden/" + "x" * 20_000), 41400),
    (garden(post(b"{}", f"X-Long: {'x' * 20_000}")), 43100),
    (garden(post(b"{}", *(f"X-{n}: {'x' * 9_000}" for n in range(9)))), 43100),
    (garden(post(b"")).replace(b"Content-Length: 0", b"Transfer-Encoding: zip"), 40000),
]


def test_refusals_of_nginx_are_errors(proxy: Front) -> None:
    """What nginx itself refuses is an Error in JSON, with the number that the service uses."""
    texts = dict(_REFUSALS.values()) | {number: ERRORS[number][0] for number in ERRORS}
    for request, number in REFUSED:
        with proxy.connect() as connection:
            connection.send_what_is_read(request)
            message = check_error(connection.receive(), number)
        assert message == texts[number] or number == 40000
    with proxy.connect(tls=False) as connection:
        assert "TLS" in check_error(connection.request(garden(post(new_rose()))), 40000)


def test_too_many_requests(service: Gunicorn) -> None:
    """Above the rate of an address, requests are 42900 with Retry-After; others are served."""
    with front(service.port, {"rate=100r/s": "rate=1r/m", "burst=200": "burst=1"}) as proxy:
        responses = [proxy.request(garden(post(new_rose()))) for _ in range(3)]
        assert [response.status for response in responses[:2]] == [200, 200]
        check_error(responses[2], 42900)
        assert responses[2].headers["retry-after"] == "1"
        with proxy.connect(source="127.0.0.2") as other:
            assert other.request(get("/garden/docs")).status == 200


def test_too_many_connections(service: Gunicorn) -> None:
    """Above the number of requests of an address at the same time, requests are 42900."""
    with ExitStack() as waiting, front(service.port, {"connections 100": "connections 2"}) as proxy:

        def is_refused() -> bool:
            # An earlier request may still be counted, so that this one does not wait.
            connection = waiting.enter_context(proxy.connect())
            connection.send(garden(post(b"", length=10)))
            response = proxy.request(get("/garden/docs"))
            if response.status == 429:
                check_error(response, 42900)
            return response.status == 429

        wait_until(is_refused)


NOT_SENT, UNKNOWN = "was not sent", "may be stored or not"


class Closing(StreamRequestHandler):
    """A service that reads the head of each request, and then ends."""

    def handle(self) -> None:
        """Record the method."""
        self.server.methods.append(self.rfile.readline().split()[0])  # type: ignore[attr-defined]


@pytest.fixture
def closing() -> Iterator[tuple[int, list[bytes]]]:
    """Return the port of a service that answers nothing, and the methods that it has received."""
    with ThreadingTCPServer(("127.0.0.1", 0), Closing) as server:
        server.methods = []  # type: ignore[attr-defined]
        Thread(target=server.serve_forever).start()
        yield server.server_address[1], server.methods  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[int]:
    """Return a port whose connections get no response."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def full() -> Iterator[int]:
    """Return a port that gets no more connections, as that of a machine that is switched off."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]
        opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield port


def check_no_answer(port: int, number: int, text: str) -> None:
    """Check the Error of a create if the service has this port."""
    seconds = {"timeout 40s": "timeout 1s", "timeout 2s": "timeout 1s"}
    with front(port, seconds) as proxy:
        response = proxy.request(garden(post(new_rose())))
        assert text in check_error(response, number)
        assert response.headers["retry-after"] == "5"


def test_service_that_cannot_be_reached(full: int) -> None:
    """If nginx cannot connect to the service, the Error says that nothing was sent to it."""
    check_no_answer(free_port(), 50200, NOT_SENT)
    check_no_answer(full, 50400, NOT_SENT)


def test_service_that_does_not_answer(silent: int, closing: tuple[int, list[bytes]]) -> None:
    """If nginx has sent a create and gets no response, the Error says that it may be stored."""
    check_no_answer(closing[0], 50200, UNKNOWN)
    check_no_answer(silent, 50400, UNKNOWN)


def two(port: int) -> dict[str, str]:
    """Return what is replaced in nginx.conf for a second instance at this port."""
    return {"#server 192.0.2.2:8000": f"server 127.0.0.1:{port}"}


def test_two_instances_of_which_one_cannot_be_reached(service: Gunicorn) -> None:
    """With two instances, no request fails while one does not run, whatever failed before."""
    with front(service.port, two(free_port())) as proxy:
        statuses = {proxy.request(garden(post(new_rose()))).status for _ in range(20)}
        assert statuses == {200}
    gone = free_port()
    with front(gone, two(port := free_port())) as proxy:
        check_error(proxy.request(garden(post(new_rose()))), 50200)
        with Gunicorn("--bind", f"127.0.0.1:{port}", PLANTSTORE_TOKENS=TOKEN):
            assert proxy.request(garden(post(new_rose()))).status == 200


def test_create_is_sent_to_one_instance(closing: tuple[int, list[bytes]]) -> None:
    """A create that may be stored is not sent to another instance. A read is."""
    port, methods = closing
    with front(port, two(port)) as proxy:
        check_error(proxy.request(garden(post(new_rose()))), 50200)
        assert methods == [b"POST"]
        check_error(proxy.request(get("/garden/plants/1")), 50200)
        assert methods == [b"POST", b"GET", b"GET"]
