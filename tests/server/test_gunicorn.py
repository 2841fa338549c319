"""The service under gunicorn: lengths, chunks, headers and connections, start and stop."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from tests.support.serving import LIMIT, PATIENCE, ROOT, Gunicorn, chunk, chunked, post
from tests.support.sites import ROSE_JSON, TOKEN, new_rose, unused_ids
from tests.support.waiting import wait_until


def test_create_over_a_socket(server: Gunicorn) -> None:
    """A create request over a socket has the response 200 with the Plant; a duplicate is 40004."""
    new = {"id": next(unused_ids), "name": "Efeutüte", "tag": "🌿"}
    response = server.request(post(orjson.dumps(new)))
    assert (response.status, orjson.loads(response.body)) == (
        200,
        {"name": "Efeutüte", "tag": "🌿"},
    )
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-length"] == str(len(response.body))
    assert server.request(post(orjson.dumps(new))).error == 40004


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


def test_request_in_single_bytes(server: Gunicorn) -> None:
    """A request that arrives in single bytes is read completely, and a shorter one after it."""
    with server.connect() as connection:
        for byte in post(new_rose()):
            connection.send(bytes([byte]))
        assert connection.receive().status == 200
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.receive().status == 404


def test_http_1_0(server: Gunicorn) -> None:
    """An HTTP/1.0 client gets a response, and the connection is closed after it."""
    with server.connect() as connection:
        connection.send(post(new_rose()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert connection.receive().status == 200
        assert connection.closed()


def test_body_shorter_than_content_length(server: Gunicorn) -> None:
    """A body shorter than its Content-Length is 40002, even if it is valid JSON."""
    body = new_rose()
    with server.connect() as connection:
        connection.limit(PATIENCE)
        connection.send(post(body, length=500))
        connection.finish()
        assert connection.receive().error == 40002
    assert server.request(post(body)).status == 200


def test_bytes_after_content_length_are_not_the_body(server: Gunicorn) -> None:
    """Bytes after the declared Content-Length are not part of the body."""
    body = new_rose()
    assert server.request(post(body + b"}}}}", length=len(body))).status == 200


def test_content_length_over_the_limit_is_refused_at_once(server: Gunicorn) -> None:
    """A Content-Length over the limit is 41301 before any byte of the body is sent."""
    assert server.request(post(b"", length=10**15)).error == 41301


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunked_body(server: Gunicorn, size: int) -> None:
    """A chunked body is read completely, whatever the sizes of its chunks."""
    body = new_rose()
    chunks = [chunk(body[at : at + size]) for at in range(0, len(body), size)]
    assert server.request(chunked(*chunks, chunk(b""))).status == 200


def test_chunked_body_over_the_limit_is_refused(server: Gunicorn) -> None:
    """A chunked body over the limit is 41301, even if everything over it is white space."""
    body = new_rose()
    padding = [chunk(b" " * 4096)] * 16
    assert server.request(chunked(chunk(body), *padding, chunk(b""))).error == 41301
    fitting = chunked(chunk(body), *padding[1:], chunk(b" " * (4096 - len(body))), chunk(b""))
    assert server.request(fitting).status == 200


@pytest.mark.parametrize(
    "tail",
    [b"x\r\n", b"-1\r\n", b"\r\n", b"5;;\r\n", b"0x5\r\nabcde\r\n", b"2\r\nabcd\r\n", b"f" * 9000],
)
def test_malformed_chunk_is_refused(server: Gunicorn, tail: bytes) -> None:
    """A malformed chunk is 40002, stores nothing, and closes the connection."""
    body = new_rose()
    with server.connect() as connection:
        connection.send(chunked(chunk(body), tail))
        assert connection.receive().error == 40002
        assert connection.closed()
    assert server.request(post(body)).status == 200


def test_missing_last_chunk_is_refused(server: Gunicorn) -> None:
    """A chunked body without its last chunk is 40002, even if it is valid JSON until there."""
    body = new_rose()
    with server.connect() as connection:
        connection.send(chunked(chunk(body)))
        connection.finish()
        assert connection.receive().error == 40002
    assert server.request(post(body)).status == 200


def test_other_transfer_encoding_is_refused(server: Gunicorn) -> None:
    """A Transfer-Encoding other than chunked is refused with 400, even if the bytes are JSON."""
    for coding in ("gzip, chunked", "deflate,chunked"):
        body = new_rose()
        response = server.request(chunked(chunk(body), chunk(b""), coding=coding))
        # The parser in C refuses the request before the service receives it.
        assert response.status == 400
        assert response.headers["content-type"] == "text/html" or response.error == 40001
        assert server.request(post(body)).status == 200


@pytest.mark.parametrize(
    "header", ["SCRIPT_NAME: /zzz", "PATH_INFO: /zzz", "X-Forwarded-Prefix: /zzz", "REMOTE_USER: x"]
)
def test_client_headers_do_not_change_the_path(server: Gunicorn, header: str) -> None:
    """No header of a client changes the path of the service or makes it fail."""
    assert server.request(post(new_rose(), header)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("Connection: Upgrade", "Upgrade: websocket"),
        *((f"Host: {host}",) for host in ("a..b", ".", f"{'a' * 64}.b", "[", "", ":80", "a b")),
        *((f"Host: {host}",) for host in ("a/b", "me@x", "x:80:80", "x:port", "[::1", "\xff")),
        *((f"Host: {host}",) for host in ("[::1]:8000", "b%C3%BCcher.example", "x_y.example:")),
    ],
)
def test_invalid_host_and_websocket(server: Gunicorn, headers: tuple[str, ...]) -> None:
    """An invalid Host header, or a WebSocket request, is 40005 if gunicorn accepts it at all."""
    request = post(new_rose(), *headers)
    if headers[0].startswith("Host"):
        request = request.replace(b"Host: localhost\r\n", b"")
    response = server.request(request)
    assert response.status == 200 or response.error == 40005


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"Authorization: Bearer s3cret\r\nAuthorization: Bearer s3cret", 40102),
        (b"Authorization: Basic x\r\nAuthorization: Bearer s3cret", 40101),
        (b"Authorization: Bearer \xff\xfe", 40102),
        (b"Authorization: Bearer sch\xc3\xb6n", 40102),
        (b"Authorization:", 40101),
        (b"Authorization: Bearer", 40102),
        (b"X-Authorization: Bearer s3cret", 40101),
    ],
)
def test_unusual_authorization_headers_are_unauthorized(
    server: Gunicorn, header: bytes, error: int
) -> None:
    """Duplicate, non-ASCII and empty Authorization headers are unauthorized, never a 500."""
    request = post(new_rose()).replace(b"Authorization: Bearer s3cret", header)
    response = server.request(request)
    assert response.error == error
    assert response.headers["www-authenticate"].startswith('Bearer realm="plantstore"')


def test_white_space_around_credentials_is_accepted(server: Gunicorn) -> None:
    """White space around the header's value and after the scheme is accepted."""
    request = post(new_rose()).replace(b"Bearer s3cret", b"  bEARER   s3cret \t ")
    assert server.request(request).status == 200


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


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run gunicorn in the project's folder until it exits."""
    return subprocess.run(
        [sys.executable, "-m", "gunicorn", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def start_refused(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start gunicorn with settings that it must refuse; return when it has exited."""
    return run("--bind", "127.0.0.1:0", *arguments, **environment)


def test_start_without_a_token_is_refused() -> None:
    """Without a token gunicorn exits at once, with one line that says what to set."""
    refused = start_refused()
    assert refused.returncode == 1, refused.stderr
    (line,) = [line for line in refused.stderr.splitlines() if "plantstore" in line]
    assert "set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE" in line
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("arguments", [("-w", "4"), ()])
def test_start_with_several_workers_on_memory_is_refused(arguments: tuple[str, ...]) -> None:
    """With the memory store, gunicorn refuses to start more than one worker, with one line."""
    refused = start_refused(*arguments, PLANTSTORE_TOKENS=TOKEN, WEB_CONCURRENCY="4")
    assert refused.returncode == 1, refused.stderr
    (line,) = [line for line in refused.stderr.splitlines() if "plantstore" in line]
    assert line.endswith("can have only one worker, not 4")
    assert "Traceback" not in refused.stderr


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


def test_other_configuration_without_a_token_is_refused(tmp_path: Path) -> None:
    """Without a token gunicorn also exits under another configuration, with one line."""
    config = tmp_path / "gunicorn.py"
    config.write_text("control_socket_disable = True\n")
    refused = start_refused("-c", str(config), "wsgi:app")
    assert refused.returncode == 3, refused.stderr
    assert refused.stderr.count("plantstore: no token is configured") == 1
    assert "Traceback" not in refused.stderr


@pytest.mark.server
def test_graceful_shutdown_finishes_requests() -> None:
    """On SIGTERM the service finishes the requests that it has begun to read."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, server.connect() as connection:
        body = new_rose()
        connection.send(post(b"", "Expect: 100-continue", length=len(body)))
        assert connection.receive_head().status == 100
        connection.send(body[:5])
        server.signal(signal.SIGTERM)
        server.wait_for("Handling signal: term")
        connection.send(body[5:])
        assert connection.receive().status == 200


@pytest.mark.server
def test_stopping_service_refuses_connections() -> None:
    """After SIGTERM, a new connection is refused while requests in progress finish."""

    def refuses() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED

    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, server.connect() as connection:
        connection.send(post(b"", "Expect: 100-continue", length=len(ROSE_JSON)))
        assert connection.receive_head().status == 100
        server.signal(signal.SIGTERM)
        wait_until(refuses)
        connection.send(ROSE_JSON)
        assert connection.receive().status == 200


@pytest.mark.server
def test_slow_closing_clients_restart_no_worker() -> None:
    """Clients that do not close their connections never cause a worker restart.

    So no plant in memory is lost.
    """
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server:
        assert configuration()["timeout"] == "0"
        first, again = post(b'{"id":1,"name":"Rose"}'), post(b'{"id":1,"name":"Lily"}')
        assert server.request(first).status == 200
        with ExitStack() as open_connections:
            for _ in range(3):
                connection = open_connections.enter_context(server.connect())
                connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert connection.receive().status == 404
            assert server.request(again).error == 40004


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
def test_site_of_an_operator(tmp_path: Path) -> None:
    """A host site is served with the configuration of the service, also without our application."""
    (tmp_path / "own.py").write_text("from flask import Flask\napp = Flask(__name__)\n")
    with Gunicorn("--pythonpath", str(tmp_path), "own:app") as server:
        assert server.request(post(new_rose())).status == 404
        assert "Traceback" not in server.log


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
    printed = run("--print-config", PLANTSTORE_TOKENS=TOKEN, **environment).stdout
    return dict(re.findall(r"^(\w+) += (.*)$", printed, re.MULTILINE))


def test_default_configuration() -> None:
    """Plain gunicorn listens on port 8000, with eight threads in one worker."""
    config = configuration()
    assert (config["wsgi_app"], config["bind"]) == ("plantstore.wsgi:app", "['127.0.0.1:8000']")
    assert config["worker_class"] == "plantstore.server._service_worker.ServiceWorker"
    assert (config["threads"], config["graceful_timeout"]) == ("8", "30")
    assert (config["workers"], config["control_socket_disable"]) == ("1", "True")


def test_port_variable() -> None:
    """PORT in the environment selects the port, on all interfaces."""
    assert configuration(PORT="80")["bind"] == "['0.0.0.0:80']"
