"""The service under agents that trace it: OpenTelemetry, Sentry, New Relic."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from tests.support.databases import Place, only, postgresql, sqlite
from tests.support.fresh import run
from tests.support.readme import recipe
from tests.support.serving import ROOT, Server, post

pytestmark = pytest.mark.install

# The first requests are sent one after the other, and then this many at once.
FEW, MANY = 3, 200
TRACE = "0af7651916cd43dd8448eb211c80319c"
READ = b"GET /plants/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"

# What is added to the module of docs/traces.md: the events are written into the log of the test.
OUTPUT = """
import json, sentry_sdk

class Output(sentry_sdk.transport.Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            if item.type in ("event", "transaction"):
                print(json.dumps({"name": item.type, **item.payload.json}, indent=4), flush=True)
"""
# The end of the module, with a store that fails.
FAILING = """
from plantstore import MemoryStore, StoreUnavailable, create_app
class Failing(MemoryStore):
    def add(self, plant):
        raise ZeroDivisionError if plant.id == 1 else StoreUnavailable("no disk")
app = create_app(store=Failing())
"""


def reporting() -> str:
    """Return the module of docs/traces.md, which reports to the output of a service that fails."""
    code = recipe("sentry").replace("https://KEY@sentry.example.org/1", "http://key@localhost/1")
    code = code.replace("traces_sample_rate=0.01", "transport=Output")
    return OUTPUT + code.replace("from plantstore.wsgi import app", FAILING)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the agents."""
    folder = tmp_path_factory.mktemp("agents")
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder)]
    file = ROOT / "tests/installation/tracing.txt"
    pinned = [line.partition("==")[0] for line in file.read_text().splitlines()]
    assert {*re.findall(r"opentelemetry\S+", recipe("otel"))} <= {*pinned}
    subprocess.run([*install, "-r", file], check=True)
    return folder


def service(folder: Path, path: list[Path], *command: str, **environment: Any) -> Server:
    """Return a service of plants in a file, which imports also what is in other folders."""
    return Server(
        *command,
        PYTHONPATH=os.pathsep.join(map(str, path)),
        PLANTSTORE_TOKENS="s3cret",
        PLANTSTORE_OPERATIONS="create,read",
        **{"PLANTSTORE_STORE": f"sqlite:///{folder}/plants.db", **environment},
    )


def reported(log: str) -> Iterator[dict[str, Any]]:
    """Yield what an agent has written into the output of a service."""
    start = -1
    while (start := log.find('{\n    "name"', start + 1)) >= 0:
        yield json.JSONDecoder().raw_decode(log, start)[0]


@only(sqlite, postgresql)
def test_opentelemetry_traces_each_request(agents: Path, tmp_path: Path, place: Place) -> None:
    """Under opentelemetry-instrument, a request is a trace of its own, and has its statements.

    A line of the log about a request has the id of its trace.
    """
    instrument = agents / "opentelemetry/instrumentation/auto_instrumentation"
    agent = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_PYTHON_LOG_CORRELATION": "true",
        "OTEL_SERVICE_NAME": "plantstore",
        "PLANTSTORE_LOG": "json",
        "PLANTSTORE_STORE": place.url,
    }
    serve = "plantstore", "serve", "--bind", "127.0.0.1:0"
    assert " plantstore serve" in recipe("otel-unit").replace("/opt/plantstore/bin/", "")
    with service(tmp_path, [instrument, agents], *serve, **agent) as server:
        assert server.request(post(b"[]", f"traceparent: 00-{TRACE}-b7ad6b7169203331-01")).error
        line = json.loads(server.wait_for(r"(?m)^.*40003: .*$")[0])
        assert (line["otelTraceID"], {*line}) == (TRACE, {*json.loads(recipe("trace-line"))})
        creates = [post(b'{"id": %d, "name": "Rose"}' % id) for id in range(1, FEW + MANY + 1)]
        for create in creates[:FEW]:
            assert server.request(create).status == server.request(READ).status == 200
        with ThreadPoolExecutor(8) as clients:
            assert {it.status for it in clients.map(server.request, creates[FEW:])} == {200}
        server.wait_until(lambda: server.log.count('"name": "POST /plants"') == FEW + MANY + 1)
        spans = [it for it in reported(server.log) if it["context"]["trace_id"] != f"0x{TRACE}"]
        assert not {"s3cret", "Rose"} & {*re.findall(r"\w+", server.log)}
    requests = {it["context"]["span_id"]: it for it in spans if it["kind"] == "SpanKind.SERVER"}
    traces = {it["context"]["trace_id"] for it in requests.values()}
    assert len(traces) == len(requests) == 2 * FEW + MANY
    assert {it["parent_id"] for it in requests.values()} == {None}
    statements = [it for it in spans if "INTO plants" in it["attributes"].get("db.statement", "")]
    # Those of a group are in the trace of one request.
    assert {requests[it["parent_id"]]["name"] for it in statements} == {"POST /plants"}
    assert len({it["context"]["trace_id"] for it in statements}) > FEW
    assert {it["context"]["trace_id"] for it in statements} <= traces


def test_sentry_has_faults_without_secrets(agents: Path, tmp_path: Path) -> None:
    """Sentry has an event for each fault, with its traceback, and neither a token nor a body."""
    (tmp_path / "reported.py").write_text(reporting())
    serve = "gunicorn", "-c", "python:plantstore.server.config", "--bind", "127.0.0.1:0"
    with service(tmp_path, [agents, tmp_path], *serve, "reported:app") as server:
        for id, number in ((1, 50001), (2, 50301)):
            assert server.request(post(b'{"id": %d, "name": "hunter2"}' % id)).error == number
        server.wait_until(lambda: server.log.count("\n}\n") == 2)
        fault, outage = reported(server.log)
    (exception,) = fault["exception"]["values"]
    assert exception["type"] == "ZeroDivisionError"
    assert outage["logentry"]["message"].startswith("50301: ")
    sent = json.dumps([fault, outage])
    assert not {"s3cret", "hunter2"} & {*re.findall(r"\w+", sent)}


@pytest.mark.parametrize("command", ["opentelemetry-instrument", "newrelic-admin run-program"])
def test_backup_under_an_agent(agents: Path, tmp_path: Path, command: str) -> None:
    """An agent that replaces the connections of sqlite3 changes no command."""
    agent = f"{shlex.quote(sys.executable)} {agents}/bin/{command} {shlex.quote(sys.executable)}"
    (tmp_path / "newrelic.ini").write_text("[newrelic]\ndeveloper_mode = true\n")
    (tmp_path / "plants.csv").write_text("id,name\n1,Rose\n2,Lily\n")
    said = run(
        " && ".join(
            f"{agent} -m plantstore {arguments}"
            for arguments in ("import plants.csv", "backup copy.db", "export copy.csv")
        ),
        tmp_path,
        PYTHONPATH=f"{agents}:{ROOT}",
        PLANTSTORE_STORE="sqlite:///plants.db",
        NEW_RELIC_CONFIG_FILE="newrelic.ini",
        OTEL_TRACES_EXPORTER="none",
        OTEL_METRICS_EXPORTER="none",
        OTEL_LOGS_EXPORTER="none",
    )
    assert said == "2 added, 0 already there, 0 different\n"
    with closing(connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT id, name FROM plants").fetchall() == [(1, "Rose"), (2, "Lily")]
    assert (tmp_path / "copy.csv").read_text() == "id,name,tag\n1,Rose,\n2,Lily,\n"
