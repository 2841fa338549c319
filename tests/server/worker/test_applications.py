"""Applications of other kinds under the worker: responses in parts, faults, hooks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.reloading import workers
from tests.support.serving import (
    LIMIT,
    PATIENCE,
    SMALL_BUFFERS,
    Gunicorn,
    configured,
    constants,
    post,
    promptly,
)
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

GET = b"GET /?%b HTTP/1.1\r\nHost: x\r\n\r\n"
# An application that responds in parts. The query says how.
PARTS = """
from threading import Event

released = Event()
produced = []

def app(environ, start_response):
    query = environ["QUERY_STRING"]
    if query == "produced":
        body = b"%d" % sum(produced)
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return parts(query)

def parts(query):
    yield b"first"
    if query == "wait":
        released.wait()
    if query == "release":
        released.set()
    if query == "fail":
        raise FileNotFoundError
    if query == "large":
        for _ in range(40):
            produced.append(100_000)
            yield b"x" * 100_000
    yield b""
    yield b"last"
"""


SEND_TIMEOUT = "from plantstore.server.worker import _client; _client.SEND_TIMEOUT = {}"


@contextmanager
def serve(
    folder: Path, application: str, *lines: str, options: Sequence[str] = ()
) -> Iterator[Gunicorn]:
    """Run an application with more lines of configuration, and options of gunicorn."""
    (folder / "own.py").write_text(application)
    lines = ("from plantstore.server.config import *", *lines)
    (folder / "gunicorn.py").write_text("\n".join(lines))
    own = ("-c", f"{folder}/gunicorn.py", f"--pythonpath={folder}", "own:app")
    with Gunicorn(*options, *own) as server:
        yield server


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """Run the application. On a busy machine, a client reads slowly."""
    lines = (SMALL_BUFFERS, SEND_TIMEOUT.format(LIMIT))
    with serve(tmp_path_factory.mktemp("application"), PARTS, *lines) as server:
        yield server


def test_response_in_parts(parts: Gunicorn) -> None:
    """An application can produce its response in parts. Each of them is sent at once."""
    with parts.connect() as connection:
        for _ in range(2):
            connection.send(GET % b"")
            assert connection.receive_head().headers["transfer-encoding"] == "chunked"
            assert connection.receive_rest(b"0\r\n\r\n") == b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"
        connection.limit(PATIENCE)
        connection.send(GET % b"wait")
        connection.receive_head()
        assert connection.receive_rest(b"first\r\n")
        assert parts.request(GET % b"release").status == 200
        assert connection.receive_rest(b"0\r\n\r\n")


def test_response_in_parts_that_is_read_slowly(parts: Gunicorn) -> None:
    """An application does not produce much more of a response than its client reads."""

    def produced() -> int:
        return int(parts.request(GET % b"produced").body)

    with parts.connect(unread=65536) as connection:
        connection.send(GET % b"large")
        wait_until(lambda: produced() >= 1_000_000)
        assert produced() < 2_000_000
        connection.receive_head()
        assert connection.receive_rest(b"0\r\n\r\n").count(b"x") == 4_000_000


def test_response_in_parts_that_is_not_read(tmp_path: Path) -> None:
    """A client that does not read a response in parts holds a thread only for some seconds."""
    lines = (SEND_TIMEOUT.format(0.2), "threads = 1")
    with serve(tmp_path, PARTS, *lines) as server, server.connect(unread=1) as connection:
        connection.send(GET % b"large")
        assert connection.has_response(PATIENCE)
        assert promptly(server, GET % b"").status == 200


def test_response_in_parts_that_fails(parts: Gunicorn) -> None:
    """If an application fails when it has sent a part, the connection ends, and the log says it."""
    with parts.connect() as connection:
        connection.send(GET % b"fail")
        connection.receive_head()
        assert connection.receive_line() + connection.receive_line() == b"5\r\nfirst\r\n"
        assert connection.closed()
        parts.wait_for(r"\[ERROR\] The application has failed\n(.|\n)*FileNotFoundError")


@pytest.mark.parametrize("error", ["SystemExit", "TimeoutError", "ssl.SSLError"])
def test_application_that_fails(tmp_path: Path, error: str) -> None:
    """An application that raises any exception ends no thread: clients get an Error without it."""
    application = f"import ssl\ndef app(environ, start_response):\n    raise {error}"
    with serve(tmp_path, application, "threads = 1") as server:
        for _ in range(4):
            response = promptly(server, post(b""))
            assert response.error == 50001
            assert error.encode() not in response.body
        assert error in server.log


# An application that responds with the size of the body, and with what is left of five seconds for
# the store, after the seconds of the query.
SIZE = """
import time
from plantstore.stores.deadline import remaining

def app(environ, start_response):
    left = remaining(5)
    time.sleep(float(environ["QUERY_STRING"]))
    body = b"%d %.1f" % (len(environ["wsgi.input"].read()), left)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.parametrize("worker", ["worker.Worker", "_service_worker.ServiceWorker"])
def test_request_that_arrives_while_all_threads_are_busy(tmp_path: Path, worker: str) -> None:
    """A request that waits for a thread is complete, and has less time for the database."""
    worker_class = f"worker_class = 'plantstore.server.{worker}'"
    lines = ("threads, loglevel = 1, 'debug'", worker_class, constants(_READ_TIMEOUT=1))
    with serve(tmp_path, SIZE, *lines) as server, server.clients(3) as (late, pipelined, slow):
        late.send((GET % b"0").replace(b"\r\n\r\n", b"\r\nContent-Length: 10\r\n\r\n12345"))
        assert pipelined.request(GET % b"0").body.startswith(b"0 ")
        slow.send(GET % b"3")
        wait_until(lambda: server.log.count("GET /") == 2)
        late.send(b"67890")
        pipelined.send(GET % b"0")
        for connection, expected in ((late, "10"), (pipelined, "0")):
            size, left = connection.receive().body.decode().split()
            assert size == expected
            assert (float(left) < 4.2) == (worker != "worker.Worker")
        assert float(server.request(GET % b"0").body.split()[1]) > 4.2


def test_limit_of_requests(tmp_path: Path) -> None:
    """With gunicorn's max_requests, a worker is replaced after so many requests."""
    store = f"sqlite:///{tmp_path}/plants.db"
    with Gunicorn("--max-requests=2", PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=store) as server:
        first = workers(server)
        with server.connect() as connection:
            for state in ("keep-alive", "close"):
                assert connection.request(post(new_rose())).headers["connection"] == state
        server.wait_for("Autorestarting worker after current request")
        server.wait_for("Booting worker(.|\n)*Booting worker")
        assert promptly(server, post(new_rose())).status == 200
        assert not first & workers(server)


# Hooks of an operator. One writes the number of threads of the worker to the log.
HOOKS = """
import threading

def pre_request(worker, request):
    threads = [thread.name for thread in threading.enumerate()]
    worker.log.info("%d threads for %s", threads.count("gunicorn worker"), request.path)

def post_request(worker, request, environ, response):
    worker.log.info("after %s", response.status)
"""


@pytest.mark.parametrize(("url", "number"), [("memory://", 1), ("sqlite:///{}/plants.db", 11)])
def test_number_of_threads(tmp_path: Path, url: str, number: int) -> None:
    """One thread serves plants in memory, more serve others. An operator's hooks are called."""
    store = url.format(tmp_path)
    with configured(tmp_path, HOOKS, "threads = 9", PLANTSTORE_STORE=store) as server:

        def has_all_threads() -> bool:
            assert server.request(post(new_rose())).status == 200
            return f" {number} threads for /plants" in server.log

        wait_until(has_all_threads)
        assert f" {number + 1} threads" not in server.log
        server.wait_for("after 200 OK")


def test_main_process_that_ends(tmp_path: Path) -> None:
    """A worker ends when its main process has been killed."""
    with configured(tmp_path) as server:
        assert server.request(post(new_rose())).status == 200
        (process,) = workers(server)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not Path(f"/proc/{process}").exists())
        assert "Parent changed, shutting down" in server.log
