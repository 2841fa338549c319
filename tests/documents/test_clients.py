"""The pages for clients: docs/quick-start.md, docs/errors.md and docs/http-reference.md."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import SHUT_RDWR
from threading import Barrier, Thread
from typing import Any

import pytest
from werkzeug import Response
from werkzeug.serving import make_server

from plantstore import MemoryStore, Plant, create_app
from plantstore.errors import ERRORS
from plantstore.server.worker._refusals import _REFUSALS
from tests.support.databases import installed
from tests.support.fresh import attempt, run
from tests.support.readme import block
from tests.support.responses import check_error
from tests.support.serving import LIMIT, PATIENCE, ROOT, Gunicorn
from tests.support.sites import LILY, ROSE, ROSE_PLANT, TOKEN, make_site

QUICK_START = "docs/quick-start.md"
ERROR_PAGE = "docs/errors.md"
TEXT = (ROOT / ERROR_PAGE).read_text()
REFERENCE_PAGE = "docs/http-reference.md"
REFERENCE = (ROOT / REFERENCE_PAGE).read_text()
# The errors that no request of a client causes by itself.
OF_SERVICE = {50001, 50301, 50302, 50303, 50304}
# The errors of the server. A status without a counter, such as 40300, is also one of the site.
OF_SERVER = {number for number, _ in _REFUSALS.values()} - {40300}
MANY = ["unavailable", "lost", "bad gateway", "lost", "unavailable"]
# The seconds that a client waits without Retry-After.
GROWING = [2, 4, 8, *[16] * 6]
JAVASCRIPT = ["node", "--input-type=module", "--eval"]


def needs_program(test: Any) -> Any:
    """Leave a test to the step full, because it needs curl or Node.js."""
    return pytest.mark.program(pytest.mark.server(test))


@needs_program
def test_examples_of_requests(tmp_path: Path) -> None:
    """Each command of the three pages, in this order, has the response that follows it."""
    *settings, program, command = shlex.split(block("http-serve", QUICK_START))
    assert (program, command) == (".venv/bin/plantstore", "serve")
    environment = dict(setting.split("=", 1) for setting in settings)
    (tokens,) = re.findall("`(.* operations=read,list)`", TEXT)
    (tmp_path / "tokens.txt").write_text(f"{tokens}\n")
    environment["PLANTSTORE_TOKENS_FILE"] = str(tmp_path / "tokens.txt")
    variables = block("http-variables", QUICK_START)
    pages = (ROOT / QUICK_START).read_text() + TEXT + REFERENCE
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", pages, re.MULTILINE | re.DOTALL))
    examples = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$].*\n)+)", blocks, re.MULTILINE)
    assert len(examples) == blocks.count("$ curl ") + 1 == 25
    installed("curl", "curl")
    with Gunicorn(**environment) as service:
        variables = variables.replace(":8000", f":{service.port}")
        for example, expected in examples:
            assert run(f"{variables}{example}", ROOT).rstrip("\n") == expected.rstrip("\n")


def test_every_error_has_advice_and_an_example() -> None:
    """Each error has its status, advice and an example; the checks have those of a create, once."""
    table = re.findall(r"^\| .*\? \| (\d.*) \|$", REFERENCE, re.MULTILINE)
    numbers = [int(number) for row in table for number in row.split(", ")]
    assert sorted([*numbers, 40006, 40402, 50001]) == sorted(ERRORS.keys() | OF_SERVER)
    message, _ = ERRORS[40004]
    assert json.loads(block("an-error", ERROR_PAGE)) == {"error": 40004, "message": message}
    sections = re.split(r"^### Error ", TEXT, flags=re.MULTILINE)[1:]
    assert [int(section[:5]) for section in sections] == sorted(ERRORS.keys() | OF_SERVER)
    for section in sections:
        number = int(section[:5])
        assert re.match(rf"{number}\n\n{number // 100}: ", section)
        advice = r"\*\*Send it again: (no|once|(?:only if|after) .*?)[.]\*\* [A-Z]"
        (again,) = re.findall(advice, " ".join(section.split()))
        assert ("Retry-After" in again) == ("Retry-After" in ERRORS.get(number, ("", {}))[1])
        by_client = number % 100 != 0 and number not in OF_SERVICE
        assert (f'\n{{"error":{number},' in section) == by_client


@pytest.mark.parametrize("page", ["", "https://plants.example/docs/errors.html"])
def test_links_to_the_page_of_errors(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """If the documents are published, 40401 and the OpenAPI document lead to the page of errors."""
    for module in ("app", "openapi.document"):
        monkeypatch.setattr(f"plantstore.{module}.ERRORS_PAGE", page)
    client = create_app({"PLANTSTORE_TOKENS": TOKEN}).test_client()
    message = check_error(client.get("/plants/1"), 40401)
    assert message.endswith(f" See {page}#error-40401" if page else "the page /docs.")
    link = json.loads(client.get("/openapi.json").data).get("externalDocs")
    assert link == ({"description": "Errors and retries", "url": page} if page else None)


def lost(site: Any, environ: Any) -> Response:
    """Execute the request, and close the connection before the response."""
    response = Response.from_app(site, environ)
    environ["werkzeug.socket"].shutdown(SHUT_RDWR)
    return response


def cut(site: Any, environ: Any) -> Response:
    """Execute the request, and end the connection in the middle of the response."""
    response = Response.from_app(site, environ)
    response.set_data(response.get_data()[:5])
    response.content_length = 50
    return response


# Eight requests are served when all of them have arrived.
EIGHT = Barrier(8)
# What happens to a request of a client. A bad gateway has lost the response of the service.
FAULTS: dict[str, Callable[[Any, Any], Response]] = {
    "served": Response.from_app,
    "together": lambda *request: (EIGHT.wait(PATIENCE), Response.from_app(*request))[1],
    "unavailable": lambda *_: Response(status=503, headers={"Retry-After": "7"}),
    "moved": lambda _, environ: Response("Moved", 301, {"Location": environ["REQUEST_URI"]}),
    "other page": lambda *_: Response("{}", content_type="application/json"),
    "bad gateway": lambda *request: Response.from_app(*request) and Response("<h1>Bad", 502),
    "lost": lost,
    "cut": cut,
}


@contextmanager
def serving(store: MemoryStore, *faults: str) -> Iterator[str]:
    """Serve a store, and provide its URL. Each of the first requests has one of the faults."""
    site = make_site(store=store, operations=["create", "read", "list"])
    remaining = iter(faults)

    def serve(environ: Any, respond: Any) -> Any:
        fault = FAULTS[next(remaining, "served")]
        return fault(site, environ)(environ, respond)

    server = make_server("127.0.0.1", 0, serve, threaded=True)
    thread = Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(LIMIT)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of the seconds that a client has waited. It waits for no real time."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    # A proxy of this machine is not used.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return waits


@contextmanager
def client(store: MemoryStore, *faults: str, httpx: bool = False) -> Iterator[dict[str, Any]]:
    """Serve a store, and provide the names that the clients of docs/errors.md define."""
    names: dict[str, Any] = {}
    with serving(store, *faults) as url:
        code = block("http-client", ERROR_PAGE).replace("http://127.0.0.1:8000", url)
        exec(code + block("http-read", ERROR_PAGE), names)
        with names["session"], ExitStack() as stack:
            if httpx:
                pytest.importorskip("httpx")
                exec(block("httpx-client", ERROR_PAGE), names)
                stack.enter_context(names["client"])
            yield names


@pytest.mark.parametrize("httpx", [False, True])
@pytest.mark.parametrize(
    ("faults", "result", "waited"),
    [
        ([], "created", [[], []]),
        (["unavailable"], "created", [[7], [7]]),
        (["bad gateway"], "exists", [[], [1]]),
        (["cut"] * 11, "IncompleteRead|peer closed", [[], [1, *GROWING]]),
        (MANY, "exists", [[7, 2, 4, 8, 7], [7, 2, 4, 8, 7]]),
        (["unavailable"] * 11, "503", [[7] * 10, [7] * 10]),
        (["lost"] * 11, "[Cc]onnect", [GROWING, [1, *GROWING]]),
        (["moved"], "301: Moved", [[], []]),
        (["other page"], "200: {}", [[], []]),
    ],
)
def test_client_creates_a_plant_once(
    store: MemoryStore, waits: list[float], faults: list[str], result: str, waited: Any, httpx: bool
) -> None:
    """A client creates a plant once, whatever fails, and waits as long as Retry-After says."""
    with client(store, *faults, httpx=httpx) as names:
        failures = OSError, RuntimeError, getattr(names.get("httpx"), "HTTPError", OSError)
        try:
            outcome = names["create"](ROSE)
        except failures as error:
            outcome = str(error)
        assert re.search(result, outcome)
        assert waits == waited[httpx]
        names["create"](ROSE)
        assert names["create"](ROSE) == "exists"
    assert list(store) == [ROSE_PLANT]


def test_client_creates_many_plants_once(
    store: MemoryStore, waits: list[float], tmp_path: Path
) -> None:
    """A client that is started again creates each plant of a CSV file once, and then proves it."""
    source, plan = tmp_path / "plants.csv", tmp_path / "plan.jsonl"
    lines = [f'plant {id}, "{"indoor" * (id % 2)}"\n' for id in range(20)]
    source.write_text("\ufeffname, tag\n" + "".join(lines))
    with client(store, *["served", "lost"] * 5, *["lost"] * 11) as names:
        names["make_plan"](source, plan)
        with pytest.raises(names["requests"].RequestException):
            names["send"](plan)
        names["make_plan"](source, plan)
        assert names["send"](plan) == {"exists": 6, "created": 14}
        assert names["send"](plan) == {"exists": 20}
    assert {plant.name: plant.tag for plant in store} == {
        f"plant {id}": "indoor" if id % 2 else None for id in range(20)
    }


def write_plan(plan: Path, ids: range) -> list[Plant]:
    """Write a plan of plants with these ids; return them."""
    plants = [LILY._replace(id=id) for id in ids]
    plan.write_text("".join(f"{json.dumps(plant.members())}\n" for plant in plants))
    return plants


def test_client_with_threads(store: MemoryStore, waits: list[float], tmp_path: Path) -> None:
    """Eight at a time, each plant of a plan is created once, also if responses are lost."""
    new_plants = write_plan(plan := tmp_path / "plan.jsonl", range(100))
    # A client gives up after six failures, whichever plants they hit.
    faults = ["together"] * 8 + ["lost", "unavailable"] * 2 + ["lost"]
    with client(store, *faults, httpx=True) as names:
        exec(block("parallel", REFERENCE_PAGE), names)
        assert {*names["send"](plan)} == {"created", "exists"}
        assert names["send"](plan) == {"exists": 100}
    assert list(store) == new_plants


@pytest.mark.parametrize("other", [{}, {"name": "Fern"}, {"tag": None}])
def test_client_says_whose_plant_it_is(store: MemoryStore, other: dict[str, Any]) -> None:
    """The function is_stored says whether the plant with this id is the one that was sent."""
    store.add(ROSE_PLANT._replace(**other))
    with client(store) as names:
        assert names["create"](ROSE) == "exists"
        assert names["is_stored"](ROSE) == (other == {})
        with pytest.raises(RuntimeError, match="404: .*40402"):
            names["is_stored"](ROSE | {"id": 2})


def fill(store: MemoryStore) -> list[Any]:
    """Add plants for three pages to a store; return them as JSON values."""
    for i in range(250):
        store.add(LILY._replace(id=2**62 + i, tag=None if i % 80 else "herb"))
    return [plant.members() for plant in store]


def test_client_reads_all_pages(store: MemoryStore, waits: list[float]) -> None:
    """The client reads each plant of all pages once, also if a response is lost, and finds some."""
    stored = fill(store)
    with client(store, "served", "lost", "served", "lost") as names:
        assert [*names["plants"]()] == stored
        exec(block("find", REFERENCE_PAGE), names)
        assert names["herbs"] == [plant for plant in stored if "tag" in plant]


def execute(command: list[str], code: str, url: str, folder: Path) -> tuple[str, str]:
    """Execute a program with the URL of a service; return what it has printed, and its error."""
    code = code.replace("http://127.0.0.1:8000", url)
    done = attempt([installed(command[0], "nodejs"), *command[1:], code], cwd=folder)
    errors = re.findall(r"^\[?(\w*Error: .*?)(?:\] {)?$", done.stderr, re.MULTILINE)
    return done.stdout, "".join(errors)


@needs_program
@pytest.mark.parametrize(
    ("name", "command", "plant"),
    [
        ("python-create", [sys.executable, "-c"], Plant(3, "Fern")),
        ("javascript-create", JAVASCRIPT, Plant(4, "Lily")),
    ],
)
def test_programs_of_the_quick_start(
    store: MemoryStore, tmp_path: Path, name: str, command: list[str], plant: Plant
) -> None:
    """The programs of the quick start create a plant, and then print the Error of a duplicate."""
    with serving(store) as url:
        for printed in (f"created: {plant.name}", f"40004 {ERRORS[40004][0]}"):
            shown = execute(command, block(name, QUICK_START), url, tmp_path)
            assert shown == (f"{printed}\n", "")
    assert list(store) == [plant]


@needs_program
def test_large_id_in_javascript(store: MemoryStore, tmp_path: Path) -> None:
    """With two more lines, the program in JavaScript sends a random 64-bit id, exactly."""
    create = re.sub("body: JSON.*", "body,", block("javascript-create", QUICK_START))
    code = block("javascript-send-id", QUICK_START) + create + "console.log(`${id}`);"
    with serving(store) as url:
        shown = execute(JAVASCRIPT, code, url, tmp_path)
    (plant,) = store
    assert shown == (f"created: Lily\n{plant.id}\n", "")


@needs_program
def test_list_in_javascript(store: MemoryStore, tmp_path: Path) -> None:
    """The JavaScript module prints each plant of all pages once, or ends with an Error."""
    printed = "".join(f"{plant['id']} {plant['name']}\n" for plant in fill(store))
    code = block("javascript-list", ERROR_PAGE)
    with serving(store, *["served"] * 3, "unavailable") as url:
        assert execute(JAVASCRIPT, code, url, tmp_path) == (printed, "")
        assert execute(JAVASCRIPT, code, url, tmp_path) == ("", "Error: 503 ")


@needs_program
@pytest.mark.parametrize(
    ("faults", "printed", "error"),
    [
        (["together"] * 8, ["created\n"] * 8, ""),
        (MANY, ["exists\n"], ""),
        (["lost"] * 6, [""], "TypeError: fetch failed"),
        (["moved"], [""], "Error: 301 Moved"),
        (["other page"], [""], "Error: 200 {}"),
    ],
)
def test_client_in_javascript(
    store: MemoryStore, tmp_path: Path, faults: list[str], printed: list[str], error: str
) -> None:
    """The JavaScript client creates each plant of any id once, or ends with an error."""
    plants = write_plan(tmp_path / "plan.jsonl", range(2**63 - len(printed), 2**63))
    code = block("javascript-client", ERROR_PAGE)
    code = code.replace("* 1000)", "* 1)")  # It waits for milliseconds instead of seconds.
    with serving(store, *faults) as url:
        assert execute(JAVASCRIPT, code, url, tmp_path) == ("".join(printed), error)
        execute(JAVASCRIPT, code, url, tmp_path)
        assert execute(JAVASCRIPT, code, url, tmp_path) == ("exists\n" * len(plants), "")
    assert list(store) == plants
