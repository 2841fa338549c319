"""What a socket changes: lengths, chunks, header bytes, connections; and how gunicorn starts."""

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import orjson
import pytest

from .serving import LIMIT, ROOT, Gunicorn, chunk, chunked, post
from .sites import ROSE, TOKEN

ids = count()


def rose() -> bytes:
    """Return the body of a creation, with an id of its own."""
    return orjson.dumps(ROSE | {"id": next(ids)})


def test_a_plant_is_created(server: Gunicorn) -> None:
    """A creation over the socket is answered 200 with the Plant."""
    answer = server.request(post('{"id":-1,"name":"Efeutüte","tag":"🌿"}'.encode()))
    assert (answer.status, orjson.loads(answer.body)) == (200, {"name": "Efeutüte", "tag": "🌿"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert server.request(post(b'{"id":-1,"name":"Rose"}')).error == 40004


def test_a_connection_serves_many_requests(server: Gunicorn) -> None:
    """A connection stays open from one request to the next, accepted or refused."""
    with server.connect() as connection:
        for request, status in (
            (post(rose()), 200),
            (post(b"{"), 400),
            (post(rose(), "Content-Encoding: gzip"), 400),
            (post(rose()).replace(b"Bearer", b"Basic"), 401),
            (b"GET /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 401),
            (b"OPTIONS /plants HTTP/1.1\r\nHost: x\r\n\r\n", 200),
            (b"POST /roses HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 404),
            (chunked(chunk(rose()), chunk(b"")), 200),
            (post(rose()), 200),
        ):
            connection.send(request)
            assert connection.receive().status == status


def test_requests_may_be_sent_ahead(server: Gunicorn) -> None:
    """Requests sent without waiting are answered in their order, read bodies or not."""
    requests = [post(rose()), post(rose()).replace(b"s3cret", b"wrong"), post(b"["), post(rose())]
    with server.connect() as connection:
        connection.send(b"".join(requests))
        assert [connection.receive().status for _ in requests] == [200, 401, 400, 200]


def test_a_request_may_come_byte_by_byte(server: Gunicorn) -> None:
    """A request that arrives in pieces is read whole."""
    with server.connect() as connection:
        for byte in post(rose()):
            connection.send(bytes([byte]))
        assert connection.receive().status == 200


def test_http_1_0_is_served(server: Gunicorn) -> None:
    """A client of HTTP/1.0 is answered, and the connection is closed behind the answer."""
    with server.connect() as connection:
        connection.send(post(rose()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert connection.receive().status == 200
        assert connection.closed()


def test_a_declared_length_is_kept(server: Gunicorn) -> None:
    """A body cut off before its declared length is 40002, also where it is JSON by itself."""
    body = rose()
    with server.connect() as connection:
        connection.send(post(body, length=500))
        connection.finish()
        assert connection.receive().error == 40002
    assert server.request(post(body)).status == 200


def test_a_body_longer_than_declared_is_the_next_request(server: Gunicorn) -> None:
    """Nothing behind the declared length is taken for the body."""
    body = rose()
    assert server.request(post(body + b"}}}}", length=len(body))).status == 200


def test_a_declared_body_over_the_limit_is_not_waited_for(server: Gunicorn) -> None:
    """A declared length over the limit is answered 41301 before any of the body is sent."""
    assert server.request(post(b"", length=10**15)).error == 41301


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_make_one_body(server: Gunicorn, size: int) -> None:
    """A chunked body is read whole, whatever the sizes of its chunks."""
    body = rose()
    chunks = [chunk(body[at : at + size]) for at in range(0, len(body), size)]
    assert server.request(chunked(*chunks, chunk(b""))).status == 200


def test_chunks_over_the_limit_are_refused(server: Gunicorn) -> None:
    """A chunked body over the limit is 41301, not cut there, even if the rest is white space."""
    body = rose()
    padding = [chunk(b" " * 65536)] * 16
    assert server.request(chunked(chunk(body), *padding, chunk(b""))).error == 41301
    fitting = chunked(chunk(body), *padding[1:], chunk(b" " * (65536 - len(body))), chunk(b""))
    assert server.request(fitting).status == 200


@pytest.mark.parametrize(
    "tail",
    [b"x\r\n", b"-1\r\n", b"\r\n", b"5;;\r\n", b"0x5\r\nabcde\r\n", b"2\r\nabcd\r\n", b"f" * 9000],
)
def test_a_bad_chunk_is_refused(server: Gunicorn, tail: bytes) -> None:
    """A body with a malformed chunk is 40002, stores nothing, and the connection is closed."""
    body = rose()
    with server.connect() as connection:
        connection.send(chunked(chunk(body), tail))
        assert connection.receive().error == 40002
        assert connection.closed()
    assert server.request(post(body)).status == 200


def test_chunks_that_do_not_end_are_refused(server: Gunicorn) -> None:
    """A chunked body whose last chunk never comes is 40002, though it be JSON up to there."""
    body = rose()
    with server.connect() as connection:
        connection.send(chunked(chunk(body)))
        connection.finish()
        assert connection.receive().error == 40002
    assert server.request(post(body)).status == 200


def test_a_transfer_coding_is_not_json(server: Gunicorn) -> None:
    """A body under another transfer coding than chunked is 400, even where its bytes are JSON."""
    for coding in ("gzip, chunked", "deflate,chunked"):
        body = rose()
        answer = server.request(chunked(chunk(body), chunk(b""), coding=coding))
        # The parser in C refuses it before the service is asked.
        assert answer.status == 400
        assert answer.headers["content-type"] == "text/html" or answer.error == 40001
        assert server.request(post(body)).status == 200


@pytest.mark.parametrize(
    "header", ["SCRIPT_NAME: /zzz", "PATH_INFO: /zzz", "X-Forwarded-Prefix: /zzz", "REMOTE_USER: x"]
)
def test_no_header_moves_the_service(server: Gunicorn, header: str) -> None:
    """No header of the client's changes where the service is, or brings it down."""
    assert server.request(post(rose(), header)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("Connection: Upgrade", "Upgrade: websocket"),
        ("Host: a..b",),
        ("Host: .",),
        (f"Host: {'a' * 64}.b",),
        ("Host: [",),
    ],
)
def test_what_cannot_be_routed_is_an_error(server: Gunicorn, headers: tuple[str, ...]) -> None:
    """A host that is none, or another protocol, is 40005, if the server lets it through at all."""
    request = post(rose(), *headers)
    if headers[0].startswith("Host"):
        request = request.replace(b"Host: localhost\r\n", b"")
    answer = server.request(request)
    assert answer.status == 200 or answer.error == 40005


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
def test_credentials_byte_by_byte(server: Gunicorn, header: bytes, error: int) -> None:
    """Doubled, foreign, non-ASCII and empty credentials are refused like any other, never a 500."""
    request = post(rose()).replace(b"Authorization: Bearer s3cret", header)
    answer = server.request(request)
    assert answer.error == error
    assert answer.headers["www-authenticate"].startswith('Bearer realm="plantstore"')


def test_spaces_around_credentials_are_fine(server: Gunicorn) -> None:
    """White space around the header's value, and spaces behind the scheme, do no harm."""
    request = post(rose()).replace(b"Bearer s3cret", b"  bEARER   s3cret \t ")
    assert server.request(request).status == 200


def test_head_and_options_have_no_body(server: Gunicorn) -> None:
    """An answer to HEAD or OPTIONS is complete with its headers."""
    with server.connect() as connection:
        for method, status in ((b"HEAD", 405), (b"OPTIONS", 200)):
            connection.send(post(b"").replace(b"POST", method))
            answer = connection.receive_head()
            assert (answer.status, answer.headers["allow"]) == (status, "OPTIONS, POST")
        connection.send(post(rose()))
        assert connection.receive().status == 200


def test_a_client_may_ask_before_it_sends(server: Gunicorn) -> None:
    """A client that expects 100-continue is told to go on, and then answered."""
    body = rose()
    with server.connect() as connection:
        connection.send(post(b"", "Expect: 100-continue", length=len(body)))
        assert connection.receive_head().status == 100
        connection.send(body)
        assert connection.receive().status == 200


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run gunicorn in the project's folder until it ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "gunicorn", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start gunicorn where it should refuse to."""
    return run("--bind", "127.0.0.1:0", *arguments, **environment)


def test_it_refuses_to_start_open() -> None:
    """Without a token gunicorn exits at once, with one line that says what to set."""
    refused = start()
    assert refused.returncode == 1
    (line,) = [line for line in refused.stderr.splitlines() if "plantstore" in line]
    assert "set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE" in line
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("arguments", [("-w", "4"), ()])
def test_it_refuses_several_workers_on_memory(arguments: tuple[str, ...]) -> None:
    """With the memory store more than one worker is refused at start, in one line."""
    refused = start(*arguments, PLANTSTORE_TOKENS=TOKEN, WEB_CONCURRENCY="4")
    assert refused.returncode == 1
    (line,) = [line for line in refused.stderr.splitlines() if "plantstore" in line]
    assert line.endswith("can have but one worker, and 4 were asked for")
    assert "Traceback" not in refused.stderr


def test_a_signal_adds_no_worker_on_memory() -> None:
    """A running service on memory stays with one worker when it is told to add one."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for("Booting worker")
        server.signal(signal.SIGTTIN)
        server.wait_for("can have but one worker\n")
        assert server.request(post(rose())).status == 200
        assert server.log.count("Booting worker") == 1


def test_somebody_elses_configuration_splits_no_store(tmp_path: Path) -> None:
    """Served by several workers under another configuration, creations are refused with 50302."""
    config = tmp_path / "gunicorn.py"
    config.write_text("workers = 2\ncontrol_socket_disable = True\n")
    with Gunicorn("-c", str(config), "wsgi:app", PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(rose())).error == 50302
        assert server.request(post(rose()).replace(b"s3cret", b"wrong")).error == 40102


def test_somebody_elses_configuration_starts_no_open_service(tmp_path: Path) -> None:
    """Without a token it ends under another configuration too, in one line of ours."""
    config = tmp_path / "gunicorn.py"
    config.write_text("control_socket_disable = True\n")
    refused = start("-c", str(config), "wsgi:app")
    assert refused.returncode == 3
    assert refused.stderr.count("plantstore: no token is configured") == 1
    assert "Traceback" not in refused.stderr


def test_requests_under_way_are_finished() -> None:
    """A service that is told to stop answers what it has begun to read."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, server.connect() as connection:
        body = rose()
        connection.send(post(b"", "Expect: 100-continue", length=len(body)))
        assert connection.receive_head().status == 100
        connection.send(body[:5])
        server.signal(signal.SIGTERM)
        server.wait_for("Handling signal: term")
        connection.send(body[5:])
        assert connection.receive().status == 200


def test_slow_closing_loses_nothing() -> None:
    """Clients who don't close their connections, however many, cost the service no plant."""
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


def test_silent_clients_stop_nobody() -> None:
    """Clients who stop in the middle of a request, however many, don't keep others from theirs."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, ExitStack() as silent:
        for begun in (b"POST /pl", post(b"{", length=500)) * 5:
            silent.enter_context(server.connect()).send(begun)
        assert server.request(post(rose())).status == 200


def configuration(**environment: str) -> dict[str, str]:
    """Return what a bare gunicorn in the project's folder takes for its configuration."""
    printed = run("--print-config", PLANTSTORE_TOKENS=TOKEN, **environment).stdout
    return dict(re.findall(r"^(\w+) += (.*)$", printed, re.MULTILINE))


def test_it_serves_as_it_is_configured() -> None:
    """A bare gunicorn serves on port 8000 by threads in one worker, with no control socket."""
    config = configuration()
    assert (config["wsgi_app"], config["bind"]) == ("wsgi:app", "['127.0.0.1:8000']")
    assert (config["worker_class"], config["threads"]) == ("gthread", "8")
    assert (config["workers"], config["control_socket_disable"]) == ("1", "True")


def test_the_port_may_be_given() -> None:
    """PORT in the environment has it listen on that port of all interfaces."""
    assert configuration(PORT="80")["bind"] == "['0.0.0.0:80']"
