"""The service under gunicorn: lengths, chunks, headers and connections, start and stop."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.serving import LIMIT, PATIENCE, ROOT, Gunicorn, chunk, chunked, post
from tests.support.sites import ROSE_JSON, TOKEN, new_rose
from tests.support.waiting import wait_until


def test_keep_alive(server: Gunicorn) -> None:
    """A connection stays open after each request, whether accepted or refused."""
    with server.connect() as connection:
        for request, status in (
            (post(new_rose()), 200),
            (post(b"{"), 400),
            (post(new_rose(), "Content-Encoding: gzip"), 400),
            (post(new_rose()).replace(b"Bearer", b"Basic"), 401),
            (b"GET /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
            (b"OPTIONS /plants HTTP/1.1\r\nHost: x\r\n\r\n", 200),
            (b"POST /roses HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 404),
            (chunked(chunk(new_rose()), chunk(b"")), 200),
            (post(new_rose()), 200),
        ):
            connection.send(request)
            assert connection.receive().status == status


def test_pipelining(server: Gunicorn) -> None:
    """Pipelined requests get their responses in order, whether their bodies were read or not."""
    requests = [
        post(new_rose()),
        post(new_rose()).replace(b"s3cret", b"wrong"),
        post(b"["),
        post(new_rose()),
    ]
    with server.connect() as connection:
        connection.send(b"".join(requests))
        assert [connection.receive().status for _ in requests] == [200, 401, 400, 200]


def test_http_1_0(server: Gunicorn) -> None:
    """An HTTP/1.0 client gets a response, and the connection is closed after it."""
    with server.connect() as connection:
        connection.send(post(new_rose()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert connection.receive().status == 200
        assert connection.closed()


def test_body_that_ends_early(server: Gunicorn) -> None:
    """A body that ends before its length, or its last chunk, is 40002, even if it is valid JSON."""
    body = new_rose()
    for request in (post(body, length=500), chunked(chunk(body))):
        with server.connect() as connection:
            connection.limit(PATIENCE)
            connection.send(request)
            connection.finish()
            assert connection.receive().error == 40002
    assert server.request(post(body)).status == 200


def test_chunked_body_over_the_limit_is_refused(server: Gunicorn) -> None:
    """A chunked body over the limit is 41301, even if everything over it is white space."""
    body = new_rose()
    padding = [chunk(b" " * 4096)] * 16
    assert server.request(chunked(chunk(body), *padding, chunk(b""))).error == 41301
    fitting = chunked(chunk(body), *padding[1:], chunk(b" " * (4096 - len(body))), chunk(b""))
    assert server.request(fitting).status == 200


def test_other_transfer_encoding_is_refused(server: Gunicorn) -> None:
    """A Transfer-Encoding other than chunked is refused with 400, even if the bytes are JSON."""
    for coding in ("gzip, chunked", "deflate,chunked"):
        body = new_rose()
        response = server.request(chunked(chunk(body), chunk(b""), coding=coding))
        # The parser in C refuses the request before the service receives it.
        assert response.status == 400
        assert response.headers["content-type"] == "text/html" or response.error == 40001
        assert server.request(post(body)).status == 200


def test_client_headers_do_not_change_the_path(server: Gunicorn) -> None:
    """No header of a client changes the path of the service or makes it fail."""
    for name in ("SCRIPT_NAME", "PATH_INFO", "X-Forwarded-Prefix", "REMOTE_USER"):
        assert server.request(post(new_rose(), f"{name}: /zzz")).status == 200


HOSTS = ["a..b", ".", f"{'a' * 64}.b", "[", "", ":80", "a b", "a/b", "me@x", "x:80:80", "x:port"]
HOSTS += ["[::1", "\xff", "[::1]:8000", "b%C3%BCcher.example", "x_y.example:"]


def test_invalid_host_and_websocket(server: Gunicorn) -> None:
    """An invalid Host header, or a WebSocket request, is 40005 if gunicorn accepts it at all."""
    requests = [post(new_rose(), "Connection: Upgrade", "Upgrade: websocket")]
    for host in HOSTS:
        other = f"Host: {host}".encode("latin-1")
        requests.append(post(new_rose()).replace(b"Host: localhost", other))
    for request in requests:
        response = server.request(request)
        assert response.status == 200 or response.error == 40005, request


def test_unusual_authorization_headers(server: Gunicorn) -> None:
    """Duplicate, non-ASCII and empty Authorization headers are unauthorized, never a 500."""
    bearer = b"Authorization: Bearer s3cret"
    for header, error in (
        (bearer + b"\r\n" + bearer, 40102),
        (b"Authorization: Basic x\r\n" + bearer, 40101),
        (b"Authorization: Bearer \xff\xfe", 40102),
        (b"Authorization:", 40101),
    ):
        assert server.request(post(new_rose()).replace(bearer, header)).error == error
    padded = post(new_rose()).replace(bearer, b"Authorization:   bEARER   s3cret \t ")
    assert server.request(padded).status == 200


def test_head_and_options_have_no_body(server: Gunicorn) -> None:
    """A response to HEAD or OPTIONS has no body."""
    with server.connect() as connection:
        for method, status in ((b"HEAD", 405), (b"OPTIONS", 200)):
            connection.send(post(b"").replace(b"POST", method))
            response = connection.receive_head()
            assert response.status == status
            assert {*response.headers["allow"].split(", ")} == {"OPTIONS", "POST"}
        connection.send(post(new_rose()))
        assert connection.receive().status == 200


def test_expect_100_continue(server: Gunicorn) -> None:
    """A client that sends Expect: 100-continue gets the status 100 at once, then the response."""
    body = new_rose()
    with server.connect() as connection:
        connection.limit(PATIENCE)
        connection.send(post(b"", "Expect: 100-continue", length=len(body)))
        assert connection.receive_head().status == 100
        connection.send(body)
        assert connection.receive().status == 200


@pytest.mark.server
def test_sigttin_adds_no_worker_on_memory() -> None:
    """With the memory store, SIGTTIN does not add a worker to a running service."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for("Booting worker")
        server.signal(signal.SIGTTIN)
        server.wait_for("can have only one worker\n")
        assert server.request(post(new_rose())).status == 200
        assert server.log.count("Booting worker") == 1


@pytest.mark.server
def test_other_configuration_with_several_workers_on_memory(tmp_path: Path) -> None:
    """With several workers under another configuration, creating a plant is refused with 50302."""
    config = tmp_path / "gunicorn.py"
    config.write_text("workers = 2\ncontrol_socket_disable = True\n")
    with Gunicorn("-c", str(config), "wsgi:app", PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(new_rose())).error == 50302
        assert server.request(post(new_rose()).replace(b"s3cret", b"wrong")).error == 40102


@pytest.mark.server
def test_graceful_shutdown() -> None:
    """On SIGTERM the service finishes the requests that it reads, and refuses new connections."""

    def refuses() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED

    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, server.connect() as connection:
        connection.send(post(b"", "Expect: 100-continue", length=len(ROSE_JSON)))
        assert connection.receive_head().status == 100
        connection.send(ROSE_JSON[:5])
        server.signal(signal.SIGTERM)
        wait_until(refuses)
        connection.send(ROSE_JSON[5:])
        assert connection.receive().status == 200


@pytest.mark.server
def test_application_of_an_operator(tmp_path: Path) -> None:
    """An application that passes its own store and token check is served without any setting."""
    (tmp_path / "own.py").write_text(
        "from plantstore import create_app, open_store\n"
        f"store = open_store('sqlite:///{tmp_path}/plants.db')\n"
        "app = create_app(store=store, verify_token=str.upper)\n"
    )
    with Gunicorn("-w", "2", "--pythonpath", str(tmp_path), "own:app") as server:
        assert server.request(post(new_rose())).status == 200
        server.signal(signal.SIGTTIN)
        wait_until(lambda: server.log.count("Booting worker") == 3)


@pytest.mark.server
def test_added_worker_does_not_split_a_memory_store(tmp_path: Path) -> None:
    """A worker that SIGTTIN adds to an application of an operator adds no id a second time."""
    (tmp_path / "own.py").write_text(
        "from plantstore import create_app\napp = create_app(verify_token=str.upper)\n"
    )
    with Gunicorn("--pythonpath", str(tmp_path), "own:app") as server:
        body, deadline = new_rose(), time.monotonic() + LIMIT
        assert server.request(post(body)).status == 200
        server.signal(signal.SIGTTIN)
        # Both workers accept connections. The new one starts to serve at some time.
        while (error := server.request(post(body)).error) == 40004:
            assert time.monotonic() < deadline
        assert error == 50302


def configuration(**environment: str) -> dict[str, str]:
    """Return the configuration of gunicorn without arguments in the project's folder."""
    printed = subprocess.run(
        [sys.executable, "-m", "gunicorn", "--print-config"],
        cwd=ROOT,
        env={**os.environ, "PLANTSTORE_TOKENS": TOKEN, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return dict(re.findall(r"^(\w+) += (.*)$", printed.stdout, re.MULTILINE))


def test_default_configuration() -> None:
    """Plain gunicorn listens on port 8000, with eight threads in one worker.

    No worker is ever killed: plants in its memory would be lost.
    """
    config = configuration()
    assert (config["wsgi_app"], config["bind"]) == ("plantstore.wsgi:app", "['127.0.0.1:8000']")
    assert config["worker_class"] == "plantstore.server._service_worker.ServiceWorker"
    assert (config["threads"], config["graceful_timeout"]) == ("8", "30")
    assert (config["workers"], config["control_socket_disable"]) == ("1", "True")
    assert config["timeout"] == "0"


def test_port_variable() -> None:
    """PORT in the environment selects the port, on all interfaces."""
    assert configuration(PORT="80")["bind"] == "['0.0.0.0:80']"
