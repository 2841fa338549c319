"""deploy/nginx.conf and deploy/haproxy.cfg, with a real nginx and HAProxy in front of services."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from plantstore.errors import ERRORS
from plantstore.server.worker._refusals import _REFUSALS
from tests.support.databases import installed
from tests.support.fresh import run as run_command
from tests.support.front import Front, front, haproxy
from tests.support.readme import block
from tests.support.serving import ROOT, Gunicorn, Response, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.deploy

ID = "x-request-id"
# What an Error says about a create that the service did not answer.
NOT_SENT, UNKNOWN = "was not sent", "may be stored or not"
Run = Callable[[int, int], AbstractContextManager[Front]]


def two(first: int, second: int) -> AbstractContextManager[Front]:
    """Run nginx in front of two instances."""
    return front(first, {"#server 192.0.2.2:8000": f"server 127.0.0.1:{second}"})


@pytest.fixture(scope="module")
def service() -> Iterator[Gunicorn]:
    """Run the service."""
    options = ("--access-logfile=-", "--forwarded-allow-ips=127.0.0.1")
    settings = {"PLANTSTORE_METRICS": "1", "PLANTSTORE_PROXIES": "1"}
    with Gunicorn(*options, PLANTSTORE_TOKENS=TOKEN, **settings) as server:
        yield server


@pytest.fixture(scope="module", params=[two, haproxy], ids=["nginx", "haproxy"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs each proxy in turn in front of two instances."""
    proxy: Run = request.param
    return proxy


@pytest.fixture(scope="module")
def proxy(run: Run, service: Gunicorn) -> Iterator[Front]:
    """Run a proxy in front of the service, and of an instance that does not run."""
    with run(service.port, free_port()) as proxy:
        yield proxy


def garden(request: bytes) -> bytes:
    """Return a request for the path below the prefix of the proxy."""
    return request.replace(b" /", b" /garden/", 1)


def get(path: str) -> bytes:
    """Return the bytes of a request for a path."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def create(proxy: Front) -> Response:
    """Return the response to a create through a proxy."""
    return proxy.request(garden(post(new_rose())))


def check_error(response: Response, number: int) -> str:
    """Check that a response is an Error with an id; return its message."""
    assert response.status == number // 100
    assert response.headers["content-type"] == "application/json"
    assert response.headers[ID]
    error = json.loads(response.body)
    assert (error.keys(), error["error"]) == ({"error", "message"}, number)
    return str(error["message"])


def test_service_through_the_proxy(proxy: Front) -> None:
    """The service is below a prefix, over TLS: its plants, its Errors, its page, its document."""
    response = create(proxy)
    assert (response.status, json.loads(response.body)["name"]) == (200, "Rose")
    document = json.loads(proxy.request(get("/garden/openapi.json")).body)
    assert document["servers"] == [{"url": "."}]
    assert proxy.request(get("/garden/docs")).status == 200
    assert "JSON object" in check_error(proxy.request(garden(post(b"[]"))), 40003)


def test_address_and_id_in_each_log(service: Gunicorn, proxy: Front) -> None:
    """Each log has the address and one id of each request. A client can choose neither."""
    request = garden(post(b"{}", "X-Forwarded-For: 192.0.2.1", "X-Request-ID: forged"))
    with proxy.connect(source="127.0.0.2") as client:
        response = client.request(request)
        client.request(b"GET /garden/healthz?query HTTP/1.1\r\nHost: x\r\n\r\n")
    assert response.status == 400
    id = response.headers[ID]
    assert re.fullmatch("[0-9a-f-]{32,36}", id)
    service.wait_for(rf"40003: .*, address: '127\.0\.0\.2', request: {id}\)")
    service.wait_for(rf'(?m)\] 127\.0\.0\.2 "POST /plants HTTP/1\.\d" 400 .* {id}$')
    line = f'127.0.0.2 "POST /garden/plants" 400 .* {id}'
    wait_until(lambda: re.search(line, proxy.log.read_text()) is not None)
    wait_until(lambda: '127.0.0.2 "GET /garden/healthz" 404 ' in proxy.log.read_text())
    assert TOKEN not in service.log + proxy.log.read_text()


HIDDEN = """
/garden/metrics /garden/healthz /garden/readyz /garden/readyz?x /garden//readyz /garden/./readyz
/garden/plants/../readyz /garden/%72eadyz /garden/plants/%2e%2e/metrics /garden/%2e/metrics
/readyz /garden /
"""


def test_health_and_metrics_are_hidden(proxy: Front) -> None:
    """No spelling of a path leads to the health or the metrics of the service."""
    for path in HIDDEN.split():
        check_error(proxy.request(get(path)), 40401)


def test_one_of_two_instances(service: Gunicorn, run: Run) -> None:
    """No request fails while one of the instances does not run; without any, nothing is sent."""
    with run(free_port(), service.port) as proxy:
        assert {create(proxy).status for _ in range(20)} == {200}
    with run(free_port(), port := free_port()) as proxy:
        response = create(proxy)
        assert NOT_SENT in check_error(response, 50300 if run is haproxy else 50200)
        assert response.headers["retry-after"] == "5"
        with Gunicorn("--bind", f"127.0.0.1:{port}", PLANTSTORE_TOKENS=TOKEN):
            wait_until(lambda: create(proxy).status == 200)


def test_create_is_sent_to_one_instance(run: Run) -> None:
    """A create that may be stored is not sent again, and the Error says that it may be stored."""
    methods = list[bytes]()

    class Closing(StreamRequestHandler):
        def handle(self) -> None:  # It reads the head of a request, and then ends.
            methods.append(self.rfile.readline().split()[0])

    with ThreadingTCPServer(("127.0.0.1", 0), Closing) as server, ExitStack() as running:
        Thread(target=server.serve_forever).start()
        running.callback(server.shutdown)
        proxy = running.enter_context(run(server.server_address[1], server.server_address[1]))
        response = create(proxy)
        assert UNKNOWN in check_error(response, 50200)
        assert response.headers["retry-after"] == "5"
        assert methods.count(b"POST") == 1


def test_instance_that_is_not_ready(service: Gunicorn) -> None:
    """HAProxy sends an instance whose store fails no requests until /readyz succeeds again."""
    broken = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": "sqlite:////none/plants.db"}
    with Gunicorn(**broken) as other, haproxy(other.port, service.port) as proxy:
        wait_until(lambda: {create(proxy).status for _ in range(6)} == {200})


def test_instance_that_is_drained(service: Gunicorn) -> None:
    """With the commands of docs/deploy.md, HAProxy sends an instance nothing until it is ready."""
    installed("socat", "socat")
    waiting = Gunicorn("--access-logfile=-", PLANTSTORE_TOKENS=TOKEN)
    with waiting as other, haproxy(service.port, other.port) as proxy:
        for name, is_used in (("drain", False), ("undrain", True)):
            command = block(name, "docs/deploy.md").splitlines()[0]
            run_command(command.replace("/run/haproxy", str(proxy.log.parent)), ROOT)
            assert {create(proxy).status for _ in range(6)} == {200}
            wait_until(lambda: ('"POST /plants' in other.log) == is_used)  # noqa: B023


def test_page_that_is_hidden(service: Gunicorn) -> None:
    """With the change of docs/operating.md, nothing leads to the page and to the document."""
    text = (ROOT / "docs" / "operating.md").read_text()
    (change,) = re.findall(r"replace `(.*)` by `(.*)`", text)
    with front(service.port, dict([change])) as proxy:
        for path in ("docs", "docs/docs.js", "openapi.json", "%64ocs", "x/../docs", "/docs"):
            check_error(proxy.request(get(f"/garden/{path}")), 40401)
        assert create(proxy).status == 200


def test_pages_of_another_origin(service: Gunicorn) -> None:
    """With the four lines of nginx.conf, a page of this origin can use the service, not without."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    lines = dict(re.findall(r"#add_header (Access-Control-\S+) (.*) always;", text))
    sent = {name.lower(): value.strip('"') for name, value in lines.items()}
    permitted = {"#add_header Access": "add_header Access"}
    for replaced, expected in ((None, {}), (permitted, sent)):
        with front(service.port, replaced) as proxy:
            for request in (get("/garden/plants").replace(b"GET", b"OPTIONS"), garden(post(b""))):
                headers = proxy.request(request).headers
                assert {name: headers[name] for name in sent if name in headers} == expected
    assert sent["access-control-allow-origin"] == "https://shop.example"
    assert len(sent) == 4


def test_service_without_a_prefix(service: Gunicorn) -> None:
    """With / instead of /garden/, the service is at the root, and the health stays hidden."""
    # This location would be there twice.
    root = {"location / {\n            return 404;\n        }": "", "/garden/": "/"}
    with front(service.port, root) as proxy:
        assert proxy.request(post(new_rose())).status == 200
        check_error(proxy.request(get("/readyz")), 40401)


REFUSED = [
    (get("/garden/plants").replace(b"GET", b"g\0t"), 40000),
    (get("/garden/plants").replace(b"Host", b"X"), 40000),
    (get("/garden/plants").replace(b"localhost", b"a\0b"), 40000),
    (get("/garden/plants").replace(b"GET", b"TRACE"), 40501),
    (garden(post(b'{"id":1,"name":"%s"}' % (b"x" * 65536))), 41301),
    (get("/garden/" + "x" * 20_000), 41400),
    (garden(post(b"{}", f"X-Long: {'x' * 20_000}")), 43100),
    (garden(post(b"{}", *(f"X-{n}: {'x' * 9_000}" for n in range(9)))), 43100),
    (garden(post(b"")).replace(b"Content-Length: 0", b"Transfer-Encoding: zip"), 40000),
]


def test_refusals_of_nginx_are_errors(service: Gunicorn) -> None:
    """What nginx itself refuses is an Error in JSON, with the number that the service uses."""
    texts = dict(_REFUSALS.values()) | {number: ERRORS[number][0] for number in ERRORS}
    with front(service.port) as proxy:
        for request, number in REFUSED:
            with proxy.connect() as connection:
                connection.send_what_is_read(request)
                message = check_error(connection.receive(), number)
            assert message == texts[number] or number == 40000
        with proxy.connect(tls=False) as connection:
            assert "TLS" in check_error(connection.request(garden(post(new_rose()))), 40000)


LIMITS = [{"=100r/s": "=1r/m", "burst=200": "burst=1"}, {"connections 100": "connections 2"}]


@pytest.mark.parametrize("limit", LIMITS, ids=["rate", "connections"])
def test_too_many_requests(service: Gunicorn, limit: dict[str, str]) -> None:
    """Above the rate or the connections of an address, requests are 42900; others are served."""
    with ExitStack() as waiting, front(service.port, limit) as proxy:

        def is_refused() -> bool:
            # An earlier request may still be counted, so that this one does not wait.
            connection = waiting.enter_context(proxy.connect())
            connection.send(garden(post(b"", length=10)))
            response = proxy.request(get("/garden/docs"))
            refused = response.status == 429 and check_error(response, 42900) != ""
            return refused and response.headers["retry-after"] == "1"

        assert proxy.request(get("/garden/docs")).status == 200
        wait_until(is_refused)
        with proxy.connect(source="127.0.0.2") as other:
            assert other.request(get("/garden/docs")).status == 200


def test_service_without_an_answer() -> None:
    """If nginx gets no response in time, the Error says whether the request was sent."""
    local = ("127.0.0.1", 0)
    with (
        socket.create_server(local) as silent,
        # It gets no more connections, as a machine that is switched off.
        socket.create_server(local, backlog=0) as full,
        socket.create_connection(full.getsockname()),
    ):
        for server, text in ((full, NOT_SENT), (silent, UNKNOWN)):
            seconds = {"timeout 40s": "timeout 1s", "timeout 2s": "timeout 1s"}
            with front(server.getsockname()[1], seconds) as proxy:
                response = create(proxy)
                assert text in check_error(response, 50400)
                assert response.headers["retry-after"] == "5"
