"""What an application gets, and what a client gets of it: as with gunicorn's own worker class."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.worker.test_applications import serve
from tests.support.serving import Gunicorn, promptly
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

# An application with a response or a function for each path.
APPLICATION = """
import io
import json
import sys

NAMES = "Connection Date Keep-Alive Server TE Trailers Transfer-Encoding Upgrade"
SERVER = [(name, "close") for name in NAMES.split()]
COOKIES = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("x-spaces", " y\\t"), ("X", "\\xe9")]
RESPONSES = {
    "headers": ("200 Very \\xe9 good", [("Content-Length", "5"), *COOKIES], [b"hello"]),
    "of_the_server": ("200 OK", [("Content-Length", " 2"), *SERVER], [b"ok"]),
    "parts": ("200 OK", [("Content-Type", "text/plain")], [b"", b"first", b"", b"last" * 1000]),
    "nothing": ("200", [], []),
    "no_content": ("204 No Content", [("Content-Length", "5"), ("X", "y")], [b"hello"]),
    "not_modified": ("304 Not Modified", [("Content-Length", "5")], []),
    "too_long": ("200 OK", [("Content-Length", "2")], [b"h", b"ello", b"!"]),
    "too_short": ("200 OK", [("Content-Length", "9")], [b"hello"]),
}

def app(environ, start_response):
    path = environ["PATH_INFO"].split("/")[1]
    if path not in RESPONSES:
        return globals()[path](environ, start_response)
    status, headers, parts = RESPONSES[path]
    start_response(status, [*headers])
    return parts

def written(environ, start_response):
    write = start_response("200 OK", [])
    write(b"one")
    write(b"two")
    return [b"three"]

def file(environ, start_response):
    data = b"x" * 10_000
    start_response("200 OK", [("Content-Length", "10000")])
    return environ["wsgi.file_wrapper"](io.BytesIO(data))

def fails_late(environ, start_response):
    start_response("200 OK", [])
    yield b"first"
    raise LookupError

def fails(environ, start_response):
    raise LookupError

def fails_twice(environ, start_response):
    start_response("200 OK", [])
    start_response("200 OK", [])

def replaces(environ, start_response):
    start_response("200 OK", [("X", "y"), ("Content-Length", "5")])
    try:
        raise LookupError
    except LookupError:
        start_response("503 Later", [("Content-Length", "2")], sys.exc_info())
    return [b"no"]

def replaces_late(environ, start_response):
    start_response("200 OK", [])(b"first")
    try:
        raise LookupError
    except LookupError:
        start_response("503 Later", [], sys.exc_info())

def refuses(environ, start_response):
    status, name, value = json.loads(environ["wsgi.input"].read())
    start_response(status, [(name, value)])
    return []

def forgets(environ, start_response):
    return [b"hello"]

def show(environ, start_response):
    print("a word", file=environ["wsgi.errors"])
    shown = {name: repr(value) for name, value in environ.items()}
    shown["body"] = environ["wsgi.input"].read().decode("latin-1")
    response = json.dumps(shown).encode()
    start_response("200 OK", [("Content-Length", str(len(response)))])
    return [response]
"""


# A hook of an operator that changes a request.
HOOK = """
from itertools import count

numbers = count(1)

def pre_request(worker, request):
    request.headers.append(("X-HOOK", str(next(numbers))))
    request.path += "/hook"
"""


class Pair(NamedTuple):
    """A server with our worker class, and one with gunicorn's; and their Unix sockets."""

    ours: Gunicorn
    theirs: Gunicorn
    sockets: tuple[Path, Path]

    def receive(self, request: bytes, *, is_local: bool = False) -> list[bytes]:
        """Return all that each of both sends, with one date."""
        received = []
        for server, path in zip(self[:2], self.sockets, strict=True):
            with server.connect(path=path if is_local else None) as connection:
                connection.send(request)
                connection.finish()
                received.append(connection.receive_all())
        return [re.sub(rb"\r\nDate: [^\r]{29}\r\n", b"\r\nDate\r\n", data) for data in received]


@contextmanager
def both(folders: pytest.TempPathFactory, *lines: str) -> Iterator[Pair]:
    """Run the application under both, with more lines of configuration."""
    lines = ("proxy_protocol = 'auto'", "threads = 2", *lines)
    with ExitStack() as running:
        servers: list[Gunicorn] = []
        sockets: list[Path] = []
        for name in ("plantstore.server.worker.Worker", "gthread"):
            folder = folders.mktemp("own")
            sockets.append(folder / "socket")
            worker_class = f"worker_class = {name!r}"
            server = serve(
                folder, APPLICATION, worker_class, *lines, options=[f"--bind=unix:{sockets[-1]}"]
            )
            servers.append(running.enter_context(server))
        yield Pair(servers[0], servers[1], (sockets[0], sockets[1]))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run the application under both."""
    with both(tmp_path_factory) as pair:
        yield pair


RESPONSES = ["headers", "of_the_server", "parts", "nothing", "no_content", "not_modified"]
RESPONSES += ["too_long", "too_short", "written", "file", "fails_late"]
LINES = [
    b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /%b HTTP/1.0\r\n\r\n",
    b"GET /%b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /%b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD /%b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]


@pytest.mark.parametrize(("name", "line"), [*product(RESPONSES, LINES)])
def test_response(pair: Pair, name: str, line: bytes) -> None:
    """A response has the same bytes as with gunicorn's own worker class, except its date."""
    ours, theirs = pair.receive(line % name.encode())
    assert ours == theirs
    assert ours.startswith(b"HTTP/1.")


FIELDS = b"Cookie: a=1\r\ncookie: b=2\r\nX-A:\r\nX-A: \xe9\r\nUser_Agent: x\r\nScript-Name: /x\r\n"
ENVIRONS = [
    (b"GET /show HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", False),
    (b"GET /show/%C3%A9%2F%zz//x;y?q=%20#f HTTP/1.1\r\nHost: x:80\r\n" + FIELDS + b"\r\n", False),
    (b"GET http://y:1/show?q HTTP/1.1\r\nHost: x\r\n\r\n", False),
    (b"POST /show HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Type: a\r\n\r\nhello", False),
    (b"POST /show HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", False),
    (b"GET /show HTTP/1.0\r\n\r\n", False),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 3 4\r\nGET /show HTTP/1.1\r\nHost: x\r\n\r\n", False),
    (b"GET /show HTTP/1.1\r\nHost: x:9\r\n\r\n", True),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 3 4\r\nGET /show HTTP/1.0\r\n\r\n", True),
]
# Objects, what differs from connection to connection, and what only gunicorn has.
OWN = {"wsgi.input", "wsgi.errors", "gunicorn.socket", "wsgi.early_hints", "REMOTE_PORT"}


def environ(response: bytes) -> dict[str, str]:
    """Return the environ of a request, without what may differ, from the response to it."""
    shown = json.loads(re.search(rb"{.*}", response)[0])  # type: ignore[index]
    return {name: shown[name] for name in shown if name not in OWN}


@pytest.mark.parametrize(("request_", "is_local"), ENVIRONS)
def test_environ(pair: Pair, request_: bytes, is_local: bool) -> None:
    """An application gets the same environ and body as with gunicorn's own worker class."""
    if b"chunked" in request_:
        request_ += b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    shown = [environ(data) for data in pair.receive(request_, is_local=is_local)]
    for shown_, server, path in zip(shown, pair[:2], pair.sockets, strict=True):
        if shown_["SERVER_PORT"] in {f"'{server.port}'", "''"}:
            shown_["SERVER_PORT"] = "the port"
        if shown_["SERVER_NAME"] in {"'127.0.0.1'", f"'{path}'"}:
            shown_["SERVER_NAME"] = "the address"
    assert shown[0] == shown[1]


GET = b"GET /show HTTP/1.1\r\nHost: x\r\n"
SIZED = b"POST /show HTTP/1.1\r\nHost: x\r\ncontent-length:\t%d\r\nX-A: %b\r\n\r\n%b"
IN_CHUNKS = b"POST /show HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
IN_CHUNKS += b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
# Lines of which several may be for one field.
PAIRS = (
    b"x-b: 1\r\nX-A: 1",
    b"x-b: 2\r\nX-A: 1",
    b"x-b:\r\nX-B: 3",
    b"x-b:2,\r\nX-B:",
    b"X-B:1\r\nX_B:1",
)
# Parts of heads that differ: the method, the target, the version, the Host, and another line.
HEADS = [
    *(
        (b"GET", b"", 1, b"x", line)
        for line in (b"X-A: 1", b"X-A: 2", b"x-a:", b"X-B: 1", b"X_B: 1")
    ),
    *((b"GET", b"", 1, b"x", b"Content-Type: %b" % kind) for kind in (b"a/b", b"\xe9")),
    *((b"GET", b"", 1, b"x", b"Content-Length: %b" % size) for size in (b"0", b"0" * 20, b"00")),
    *((b"GET", target, 1, b"x", b"X-A: 1") for target in (b"/1?a", b"/%C3%A92?", b"//#b", b"/3")),
    *((b"PUT", b"/3", 1, b"x", b"X-A: 1"), (b"PUT", b"/3", 1, b"y:9", b"X-A: 1")),
    *((b"PUT", b"/4", minor, b"y:9", b"X-A: 5") for minor in (0, 1)),
    *((b"GET", b"/%b" % line, 1, b"x", line) for line in (b"X_B:1", b"X-B:1") * 2),
    *((b"GET", b"/X-B:1", 1, b"x", b"X-B:%d\r\n%b" % it) for it in product((1, 2), PAIRS)),
]
ONE_AFTER_THE_OTHER = [
    *(SIZED % (len(body), b"1", body) for body in (b"hello", b"HELLO", b"hello, world", b"")),
    *(SIZED % (5, value, b"hello") for value in (b"2", b"1", b"1" * 8000, b"1" * 8000)),
    *(IN_CHUNKS.replace(b"lo", end) for end in (b"lo", b"p!", b"ix")),
    SIZED % (5, b"1", b"again"),
    *(GET + b"\r\n", GET + b"\r\n", GET + b"Content-Length: 0 \r\n\r\n", GET + b"\r\n"),
    *(GET + b"Content-Length: 2 \r\n\r\n%b" % body for body in (b"ab", b"cd", b"ef")),
    *(
        b"%b /show%b HTTP/1.%d\r\nHost: %b\r\n%b\r\nConnection: keep-alive\r\n\r\n" % it
        for it in HEADS
    ),
]


def receive_one_after_the_other(pair: Pair) -> list[dict[str, str]]:
    """Return the environ of each of these requests of a connection, which is that of gunicorn."""
    shown = []
    for server in pair[:2]:
        with server.connect() as connection:
            alternating = chain(*zip(ONE_AFTER_THE_OTHER, ONE_AFTER_THE_OTHER[::-1], strict=True))
            requests = [*ONE_AFTER_THE_OTHER * 2, *alternating]
            received = [connection.request(request) for request in requests]
        shown.append([environ(response.body) | {"SERVER_PORT": ""} for response in received])
    assert shown[0] == shown[1]
    return shown[0]


def test_requests_of_one_connection(pair: Pair) -> None:
    """An application gets each request of a connection as it is, whatever was sent before it.

    What it writes to ``wsgi.errors`` is in the log.
    """
    shown = receive_one_after_the_other(pair)
    assert pair.ours.log.count("a word\n") >= len(shown)
    assert [environ["body"] for environ in shown][:4] == ["hello", "HELLO", "hello, world", ""]


def test_hook_that_changes_requests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A hook of an operator may change each request of a connection."""
    with both(tmp_path_factory, HOOK) as pair:
        shown = receive_one_after_the_other(pair)
    numbers = [environ["HTTP_X_HOOK"] for environ in shown]
    assert numbers == [f"'{number}'" for number in range(1, len(shown) + 1)]


def test_address_of_a_local_client(pair: Pair, tmp_path: Path) -> None:
    """A client of a Unix socket may have a path as its address, or a name without a path."""
    for source in (f"{tmp_path}/\xe9", "\0\xe9"):
        with pair.ours.connect(path=pair.sockets[0], source=source) as connection:
            connection.send(LINES[1] % b"show")
            shown = environ(connection.receive_all())
        assert shown["REMOTE_ADDR"] == repr(source.encode().decode("latin-1"))


def refusal(*row: object) -> bytes:
    """Return a request for a response with this status, and this name and value of a header."""
    body = json.dumps(row).encode()
    head = b"POST /refuses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


INVALID = [
    *(LINES[0] % name for name in (b"fails", b"fails_twice", b"forgets")),
    *(refusal(status, "X", "y") for status in ("200 OK\r\nX: y", "2000", "x", 200, "200 \u20ac")),
    *(refusal("200 OK", name, "y") for name in ("", "X Y", "X:", "X\r\nY", "\xe9", 1, None)),
    *(refusal("200 OK", "X", value) for value in ("y\r\nX: z", "y\0", "\u20ac", 1, None)),
    *(refusal("200 OK", "Content-Length", value) for value in ("x", "", "1, 1")),
]


@pytest.mark.parametrize("request_", INVALID)
def test_application_that_is_at_fault(pair: Pair, request_: bytes) -> None:
    """A failure before the response, or a status or header that cannot be sent, is a 500."""
    for received in pair.receive(request_):
        assert received.startswith(b"HTTP/1.1 500 ")


def test_refusal_of_the_worker_itself(pair: Pair) -> None:
    """By itself, the worker refuses what is not valid HTTP with plain text, and does not log it."""
    ours, _ = pair.receive(b"hunter2 /show HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ours.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nContent-Type: text/plain\r\n" in ours
    assert ours.endswith(b"\r\n\r\nThe method is invalid.")
    assert "hunter2" not in pair.ours.log


def test_response_that_is_replaced(pair: Pair) -> None:
    """After an exception, an application may replace its response, if it has not been sent."""
    ours, _ = pair.receive(LINES[0] % b"replaces")
    head = b"HTTP/1.1 503 Later\r\nServer: gunicorn\r\nDate\r\nConnection: keep-alive\r\n"
    assert ours == head + b"Content-Length: 2\r\n\r\nno"
    assert b"503" not in b"".join(pair.receive(LINES[0] % b"replaces_late"))


def test_response_that_is_too_short(pair: Pair) -> None:
    """After a response that is shorter than its Content-Length, the connection ends."""
    ours, _ = pair.receive(LINES[0] % b"too_short" * 2)
    assert ours.endswith(b"Content-Length: 9\r\n\r\nhello")
    assert ours.count(b"HTTP/1.1 200") == 1


def test_dates(pair: Pair) -> None:
    """Each response has the date of its second."""
    with pair.ours.connect() as connection:
        dates = set()

        def is_later() -> bool:
            dates.add(connection.request(LINES[0] % b"too_long").headers["date"])
            return len(dates) > 1

        wait_until(is_later)


def test_application_below_a_prefix(tmp_path: Path) -> None:
    """With the variable SCRIPT_NAME, the application is below it, and nothing is elsewhere."""
    lines = ("raw_env = ['SCRIPT_NAME=/garden']",)
    with serve(tmp_path, APPLICATION, *lines) as server:
        with server.connect() as connection:
            connection.send(LINES[1] % b"garden/show")
            shown = connection.receive_all()
        assert b'"SCRIPT_NAME": "\'/garden\'"' in shown
        assert b'"PATH_INFO": "\'/show\'"' in shown
        assert promptly(server, LINES[0] % b"show").error == 40401
