"""The pages for clients: docs/quick-start.md and docs/errors.md."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import SHUT_RDWR
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug import Response
from werkzeug.serving import make_server

from plantstore import MemoryStore, Plant
from plantstore.errors import ERRORS
from plantstore.server.worker._refusals import _REFUSALS
from tests.support.fresh import run
from tests.support.readme import block
from tests.support.serving import LIMIT, ROOT, Gunicorn
from tests.support.sites import LILY, ROSE, ROSE_PLANT, make_site

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

QUICK_START = "docs/quick-start.md"
ERROR_PAGE = "docs/errors.md"
TEXT = (ROOT / ERROR_PAGE).read_text()
# The errors that no request of a client causes by itself.
FAULTS = {50001, 50301, 50302, 50303, 50304}


@pytest.mark.server
@pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")
def test_examples_of_requests(tmp_path: Path) -> None:
    """Each command of the two pages, in this order, has the response that follows it."""
    *settings, program = shlex.split(block("http-serve", QUICK_START))
    assert program == ".venv/bin/gunicorn"
    environment = dict(setting.split("=", 1) for setting in settings)
    (tmp_path / "tokens.txt").write_text(block("http-tokens", ERROR_PAGE))
    environment["PLANTSTORE_TOKENS_FILE"] = str(tmp_path / "tokens.txt")
    variables = block("http-variables", QUICK_START)
    pages = (ROOT / QUICK_START).read_text() + TEXT
    blocks = re.findall(r"^```console\n(.*?)^```$", pages, re.MULTILINE | re.DOTALL)
    examples = re.findall(r"^\$ (.*)\n((?:[^$].*\n)+)", "".join(blocks), re.MULTILINE)
    assert len(examples) == "".join(blocks).count("$ curl ") + 1 == 23
    with Gunicorn(**environment) as service:
        variables = variables.replace(":8000", f":{service.port}")
        for command, expected in examples:
            assert run(f"{variables}{command}", ROOT).rstrip("\n") == expected.rstrip("\n")


def test_every_error_has_advice_and_an_example() -> None:
    """Each error has a heading, its status and advice, and if a client causes it, an example."""
    sections = re.split(r"^### Error ", TEXT, flags=re.MULTILINE)[1:]
    # A status without a counter is also that of a refusal by the site, such as 40300.
    of_server = {number for number, _ in _REFUSALS.values()} - {40300}
    assert [int(section[:5]) for section in sections] == sorted(ERRORS.keys() | of_server)
    for section in sections:
        number = int(section[:5])
        assert re.match(rf"{number}\n\n{number // 100}: ", section)
        (again,) = re.findall(
            "^Send it again: (no|once|(?:only if|after) .*?)[.] [A-Z]", section, re.M
        )
        assert ("Retry-After" in again) == ("Retry-After" in ERRORS.get(number, ("", {}))[1])
        by_client = number % 100 != 0 and number not in FAULTS
        assert (f'\n{{"error":{number},' in section) == by_client


# What happens to a request of the Python client instead of a usual response.
Fault = Callable[["WSGIApplication", "WSGIEnvironment"], Response]


def unavailable(site: "WSGIApplication", environ: "WSGIEnvironment") -> Response:
    """Respond with 503 and Retry-After, without the service."""
    return Response(status=503, headers={"Retry-After": "7"})


def bad_gateway(site: "WSGIApplication", environ: "WSGIEnvironment") -> Response:
    """Execute the request, and respond as a proxy that has lost the response."""
    Response.from_app(site, environ)
    return Response("<h1>Bad Gateway</h1>", 502)


def lost(site: "WSGIApplication", environ: "WSGIEnvironment") -> Response:
    """Execute the request, and close the connection before the response."""
    response = Response.from_app(site, environ)
    environ["werkzeug.socket"].shutdown(SHUT_RDWR)
    return response


def moved(site: "WSGIApplication", environ: "WSGIEnvironment") -> Response:
    """Redirect the client to the same URL."""
    return Response("Moved", 301, {"Location": environ["REQUEST_URI"]})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of the seconds that the client has waited. It waits for no real time."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


@contextmanager
def serving(application: "WSGIApplication") -> Iterator[str]:
    """Serve an application on a free port, and provide its URL."""
    server = make_server("127.0.0.1", 0, application)
    thread = Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(LIMIT)


@contextmanager
def client(store: MemoryStore, *faults: Fault) -> Iterator[dict[str, Any]]:
    """Serve a store, and provide the names that the client of docs/errors.md defines.

    :param faults: what happens to the first requests, one for each.
    """
    site = make_site(store=store, url_prefix="/garden", operations=["create", "read", "list"])
    remaining = iter(faults)

    def serve(environ: "WSGIEnvironment", respond: "StartResponse") -> Any:
        fault = next(remaining, Response.from_app)
        return fault(site, environ)(environ, respond)

    names: dict[str, Any] = {}
    with serving(serve) as url:
        code = block("http-client", ERROR_PAGE).replace("http://127.0.0.1:8000", f"{url}/garden")
        exec(code, names)
        # A proxy or a file .netrc of this machine is not used.
        names["session"].trust_env = False
        with names["session"]:
            yield names


@pytest.mark.server
@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs")
@pytest.mark.parametrize(
    ("name", "command", "plant"),
    [
        ("python-create", [sys.executable, "-c"], Plant(3, "Fern")),
        ("javascript-create", ["node", "--input-type=module", "--eval"], Plant(4, "Lily")),
    ],
)
def test_programs_of_the_quick_start(
    store: MemoryStore, name: str, command: list[str], plant: Plant
) -> None:
    """The programs of the quick start create a plant, and then print the Error of a duplicate."""
    with serving(make_site(store=store)) as url:
        code = block(name, QUICK_START).replace("http://127.0.0.1:8000", url)
        for printed in (f"created: {plant.name}", f"40004 {ERRORS[40004][0]}"):
            done = subprocess.run(
                [*command, code], capture_output=True, text=True, timeout=LIMIT, check=False
            )
            assert (done.stdout, done.stderr) == (f"{printed}\n", "")
    assert list(store) == [plant]


def test_example_of_an_error() -> None:
    """The Error that the page begins with is the one of a duplicate."""
    message, _ = ERRORS[40004]
    assert json.loads(block("an-error", ERROR_PAGE)) == {"error": 40004, "message": message}


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([], []),
        ([unavailable], [7]),
        ([bad_gateway], []),
        ([lost], []),
        ([unavailable, lost, bad_gateway, lost, unavailable], [7, 2, 4, 8, 7]),
        # The last attempt of the creation gets 40004, and the first one of reading is lost.
        ([lost, lost, Response.from_app, lost], [2]),
    ],
)
def test_client_creates_a_plant_once(
    store: MemoryStore, waits: list[float], faults: list[Fault], expected: list[float]
) -> None:
    """The Python client creates a plant once, also if the service fails or a response is lost."""
    with client(store, *faults) as names:
        names["create"](ROSE)
    assert list(store) == [ROSE_PLANT]
    assert waits == expected


def test_client_creates_many_plants_once(
    store: MemoryStore, waits: list[float], tmp_path: Path
) -> None:
    """The program for many plants, when it is started again, creates each plant once.

    An empty tag is no tag, and spaces after a comma are not read, as in `plantstore import`.
    """
    source, plan = tmp_path / "plants.csv", tmp_path / "plan.jsonl"
    lines = [f'plant {id}, "{"indoor" * (id % 2)}"\n' for id in range(20)]
    source.write_text("\ufeffname, tag\n" + "".join(lines))
    served: Fault = Response.from_app
    fault: Fault = lost
    with client(store, *[served, fault] * 5, *[fault] * 6) as names:
        exec(block("http-many", ERROR_PAGE), names)
        with pytest.raises(names["requests"].RequestException):
            names["create_all"](source, plan)
        names["create_all"](source, plan)
    assert {plant.name: plant.tag for plant in store} == {
        f"plant {id}": "indoor" if id % 2 else None for id in range(20)
    }
    planned = [json.loads(line) for line in plan.read_text().splitlines()]
    assert {plant["id"] for plant in planned} == {plant.id for plant in store}


@pytest.mark.parametrize("faults", [[], [unavailable], [lost]])
@pytest.mark.parametrize("other", [{"name": "Fern"}, {"tag": None}])
def test_client_reports_that_an_id_is_taken(
    store: MemoryStore, waits: list[float], faults: list[Fault], other: dict[str, Any]
) -> None:
    """The Python client raises 40004 with its message if another plant has the id."""
    stored = ROSE_PLANT._replace(**other)
    store.add(stored)
    message = f"40004.*{ERRORS[40004][0]}"
    with (
        client(store, *faults) as names,
        pytest.raises(names["requests"].HTTPError, match=message),
    ):
        names["create"](ROSE)
    assert list(store) == [stored]


@pytest.mark.parametrize(
    ("fault", "error"),
    [(unavailable, "RetryError"), (lost, "ConnectionError"), (moved, "HTTPError")],
)
def test_client_gives_up(store: MemoryStore, waits: list[float], fault: Fault, error: str) -> None:
    """The Python client raises an error after six attempts, or at once after a redirect."""
    with client(store, *[fault] * 6) as names:
        kind = getattr(names["requests"], error, None) or names["requests"].exceptions.RetryError
        with pytest.raises(kind):
            names["create"](ROSE)
    assert len(waits) <= 5


@pytest.mark.parametrize("number", [0, 100, 250])
def test_client_reads_all_pages(store: MemoryStore, waits: list[float], number: int) -> None:
    """The Python client reads each plant of all pages once, also if a response is lost."""
    stored = [LILY._replace(id=id) for id in range(number)]
    for plant in stored:
        store.add(plant)
    with client(store, Response.from_app, lost, Response.from_app, lost) as names:
        assert [*names["plants"]()] == [plant.members() for plant in stored]
