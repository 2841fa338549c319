"""The service under gunicorn: lengths, chunks, headers, start and stop; and under granian."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plantstore.blueprint import OPERATIONS
from tests.support.log import LINE
from tests.support.serving import LIMIT, PATIENCE, ROOT, Granian, Gunicorn, chunk, chunked, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until


def test_keep_alive(server: Gunicorn) -> None:
    """A connection stays open after each request, whether accepted or refused, or pipelined."""
    requests = [
        (post(new_rose()), 200),
        (post(b"{"), 400),
        (post(b"{}", "Content-Encoding: gzip"), 400),
        (post(new_rose()).replace(b"Bearer", b"Basic"), 401),
        (b"GET /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"OPTIONS /plants HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"POST /roses HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 404),
        (chunked(chunk(new_rose().ljust(65_536)), chunk(b"")), 200),
        (chunked(*[chunk(b" ")] * 3000, chunk(new_rose()), chunk(b"")), 200),
        (post(b"{}"), 400),
    ]
    with server.connect() as connection:
        for request, status in requests:
            assert connection.request(request).status == status
        again = [(post(new_rose()) if status == 200 else request) for request, status in requests]
        connection.send(b"".join(again))
        assert [connection.receive().status for _ in requests] == [status for _, status in requests]


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


HOST, BEARER = b"Host: localhost", b"Authorization: Bearer s3cret"
# A header of a valid request, what replaces it, and the number of the Error, if there is one.
HEADERS = [
    (BEARER, BEARER + b"\r\n" + BEARER, 40102),
    (BEARER, b"Authorization: Basic x\r\n" + BEARER, 40101),
    (BEARER, b"Authorization: Bearer \xff\xfe", 40102),
    (BEARER, b"Authorization:", 40101),
    (BEARER, b"Authorization:   bEARER   s3cret \t ", None),
    (HOST, HOST + b"\r\nSCRIPT_NAME: /zzz\r\nPATH_INFO: /zzz", None),
    (HOST, HOST + b"\r\nX-Forwarded-Prefix: /zzz\r\nREMOTE_USER: /zzz", None),
]
# Hosts that no domain has.
HOSTS = ["a..b", ".", f"{'a' * 64}.b", "[", "", ":80", "a b", "a/b", "me@x", "x:80:80", "x:port"]
HOSTS += ["[::1", "\xff", "[::1]:8000", "b%C3%BCcher.example", "x_y.example:"]


def test_unusual_headers(server: Gunicorn) -> None:
    """No header of a client makes the service fail, or changes its path. Wrong ones are Errors."""
    for old, new, error in HEADERS:
        response = server.request(post(new_rose()).replace(old, new))
        assert response.status == 200 if error is None else response.error == error
    request = chunked(chunk(new_rose()), chunk(b"")).replace(b": chunked", b": gzip, chunked")
    assert server.request(request).error == 40001
    for host in HOSTS:
        other = b"Host: " + host.encode("latin-1")
        response = server.request(post(new_rose()).replace(HOST, other))
        assert response.status == 200, host


@pytest.mark.linux
def test_head_and_options_have_no_body(server: Gunicorn) -> None:
    """A response to HEAD or OPTIONS has no body, nor has one to HEAD that is not valid HTTP."""
    with server.connect() as connection:
        for method, status in ((b"HEAD", 405), (b"OPTIONS", 200)):
            connection.send(post(b"").replace(b"POST", method))
            response = connection.receive_head()
            assert response.status == status
            assert {*response.headers["allow"].split(", ")} == {"OPTIONS", "POST"}
        connection.send(b"HEAD /plants HTTP/1.1\r\nHost: x\r\nX y\r\n\r\n")
        assert connection.receive_head().status == 400
        assert connection.closed()


@pytest.mark.server
def test_sigttin_adds_no_worker_on_memory() -> None:
    """With the memory store, SIGTTIN does not add a worker to a running service."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for("Booting worker")
        server.signal(signal.SIGTTIN)
        server.wait_for("can have only one worker, not 2\n")
        assert server.request(post(new_rose())).status == 200
        assert server.log.count("Booting worker") == 1
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.log.count("Booting worker") == 2)
        assert server.log.count("can have only one worker") == 1


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


@pytest.mark.linux
@pytest.mark.parametrize(("port", "bind"), [("", "127.0.0.1:8000"), ("PORT=80", "0.0.0.0:80")])
def test_default_configuration(port: str, bind: str) -> None:
    """Plain gunicorn has eight threads in one worker, which it never kills. PORT sets the port."""
    command = f"PLANTSTORE_TOKENS=x {port} '{sys.executable}' -m gunicorn --print-config"
    printed = subprocess.check_output(command, cwd=ROOT, shell=True, text=True, timeout=LIMIT)
    config = dict(re.findall(r"^(\w+) += (.*)$", printed, re.MULTILINE))
    assert (config["wsgi_app"], config["bind"]) == ("plantstore.wsgi:app", f"['{bind}']")
    assert config["worker_class"] == "plantstore.server._service_worker.ServiceWorker"
    assert (config["threads"], config["graceful_timeout"]) == ("8", "30")
    assert (config["workers"], config["control_socket_disable"]) == ("1", "True")
    assert config["timeout"] == "0"


NEW = b'{"id": %d, "name": "Monstera", "tag": "indoor"}'
REQUESTS = [
    post(NEW % 1),
    post(NEW % 1),
    chunked(chunk((NEW % 3)[:9]), chunk((NEW % 3)[9:]), chunk(b"")),
    post((NEW % 4).ljust(65_536)),
    post((NEW % 5).ljust(65_537)),
    post(b"", length=10**12),
    chunked(*[chunk(b" " * 4096)] * 17, chunk(b"")),
    post(b"").replace(b"Content-Length: 0\r\n", b""),
    post(b"{}"),
    post(b"["),
    post(NEW % 6, "Content-Encoding: gzip"),
    post(NEW % 6).replace(b"s3cret", b"wrong"),
    post(NEW % 6).replace(b"Bearer s3cret", b""),
    b"DELETE" + post(b"")[4:],
    b"OPTIONS" + post(b"")[4:],
    post(NEW % 6).replace(b"/plants", b"/plants/1"),
]


@pytest.mark.server
def test_granian_responses_equal_gunicorn() -> None:
    """For every kind of request granian sends the same status, headers and body as gunicorn.

    The lines of the service in the log have the same format.
    """
    with (
        Gunicorn(PLANTSTORE_TOKENS="s3cret") as gunicorn,
        Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as granian,
    ):
        for request in REQUESTS:
            expected, response = gunicorn.request(request), granian.request(request)
            assert (response.status, response.body) == (expected.status, expected.body)
            for name in ("content-type", "content-length", "www-authenticate"):
                assert response.headers.get(name) == expected.headers.get(name)
            allowed = [{*it.headers.get("allow", "").split(", ")} for it in (expected, response)]
            assert allowed[0] == allowed[1]
        assert LINE.match(granian.wait_for(".*40002: .*")[0])
        assert "Traceback" not in granian.log


# The headers that a response depends on, or that a library could parse, with a right value.
DATE = b"Mon, 01 Jan 2024 00:00:00 GMT"
RIGHT = {
    b"Accept": b"text/html;q=0.9, */*",
    b"Accept-Encoding": b"gzip;q=0.5, identity",
    b"Access-Control-Request-Headers": b"authorization, content-type",
    b"Access-Control-Request-Method": b"POST",
    b"Authorization": b"Bearer s3cret",
    b"Connection": b"keep-alive, close",
    b"Content-Encoding": b"gzip",
    b"Content-Length": b"2",
    b"Content-Type": b"application/json; charset=utf-8",
    b"Cookie": b'session=a.b.c; x="\\012"',
    b"Expect": b"100-continue",
    b"Host": b"x:80",
    b"If-Match": b'W/"x", *',
    b"If-Modified-Since": DATE,
    b"If-None-Match": b'W/"x", "y"',
    b"If-Range": DATE,
    b"If-Unmodified-Since": DATE,
    b"Origin": b"https://x:80",
    b"Range": b"bytes=0-1,-5",
    b"Transfer-Encoding": b"gzip, chunked",
    b"Upgrade": b"websocket",
    b"X-Forwarded-For": b"::1, 192.0.2.1:80",
    b"X-Forwarded-Host": b"x",
    b"X-Forwarded-Proto": b"https",
    b"X-Request-ID": b"a-1",
}
PATHS = b"plants plants/1 openapi.json docs docs/index.css healthz metrics".split()
# What is inserted: what means something in a header, numbers and dates out of range, and any bytes.
PIECES = b', ; = : " \\ / * % - + ( [ @ # \t \0 \x80 \xff \r\n \r\n\r\n +9999999999999'.split(b" ")
PIECES += [b"", b"9" * 30, b"-1", b"1_0", b"0x5", b"\xb2", b"xn--", b"..", b"a" * 300, DATE]
Change = tuple[int, int, bytes]
NAME = st.sampled_from([*RIGHT])
CHANGE = st.tuples(
    st.integers(0, 40), st.integers(0, 4), st.sampled_from(PIECES) | st.binary(max_size=4)
)


@pytest.fixture(scope="module")
def whole() -> Iterator[Gunicorn]:
    """Run the service with all operations and pages."""
    settings = {"PLANTSTORE_OPERATIONS": ",".join(OPERATIONS), "PLANTSTORE_METRICS": "1"}
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, **settings) as server:
        yield server
        assert "Traceback" not in server.log
        assert TOKEN not in server.log


def changed(value: bytes, changes: list[Change]) -> bytes:
    """Return a value in which parts are replaced."""
    for place, size, piece in changes:
        start = place % (len(value) + 1)
        value = value[:start] + piece + value[start + size :]
    return value


METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"OPTIONS", b"HEAD"])
STARTS = st.tuples(METHODS, st.sampled_from(PATHS), st.sampled_from([b"0", b"1"]))
WRONG = st.dictionaries(NAME, st.lists(CHANGE, min_size=1, max_size=2), min_size=1, max_size=2)


@pytest.mark.server
@given(STARTS.map(b"%b /%b HTTP/1.%b\r\n".__mod__), st.lists(NAME, max_size=3), WRONG)
def test_mutated_headers(
    whole: Gunicorn, start: bytes, right: list[bytes], wrong: dict[bytes, list[Change]]
) -> None:
    """No value of a header makes the service fail, or writes a traceback or a token to its log."""
    fields = [(name, RIGHT[name]) for name in (b"Host", b"Authorization", *right)]
    fields += [(name, changed(RIGHT[name], changes)) for name, changes in wrong.items()]
    lines = [b"%b: %b\r\n" % field for field in dict(fields).items()]
    with whole.connect() as connection:
        connection.send_what_is_read(b"".join([start, *lines, b"\r\n"]) + b"{}")
        connection.finish()
        received = connection.receive_all()
    assert not re.search(rb"HTTP/1\.[01] 5", received), received
