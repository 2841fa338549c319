"""The metrics of the standalone service."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from flask import request
from flask.testing import FlaskClient
from prometheus_client import REGISTRY, Histogram
from prometheus_client.parser import text_string_to_metric_families

from plantstore import Client, MemoryStore, PlantExists, StoreUnavailable, __version__, create_app
from tests.support.commands import invoke, refused
from tests.support.readme import recipe
from tests.support.reloading import ANYWHERE, kill_workers, served, status, workers
from tests.support.responses import ALL, check_error, create, perform
from tests.support.serving import LIMIT, ROOT, Gunicorn, Server, post
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, TOKEN, new_rose
from tests.support.waiting import wait_until

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n"
ON = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": "1"}
DURATION = "plantstore_request_duration_seconds"
TWO_SERVICES = """
from plantstore import create_app
from prometheus_client import Counter
from werkzeug.middleware.dispatcher import DispatcherMiddleware
Counter("other", "of the host").inc()
app = DispatcherMiddleware(create_app(), {"/garden": create_app()})
"""


def series(operation: str, outcome: str) -> str:
    """Return the name of the number of requests of an operation with an outcome."""
    return f'{DURATION}_count{{operation="{operation}",outcome="{outcome}"}}'


CREATED = series("create", "ok")


def parse(text: str) -> dict[str, float]:
    """Return the values of the metrics."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    assert [*text_string_to_metric_families(text)]
    return {name: float(value) for name, _, value in lines}


def read(server: Server) -> dict[str, float]:
    """Return the metrics of a service."""
    response = server.request(GET)
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return parse(response.body.decode())


@pytest.fixture
def measured() -> FlaskClient:
    """Return a client of a service with metrics."""
    return create_app(ON).test_client()


def values(client: FlaskClient) -> dict[str, float]:
    """Return the metrics of an application."""
    return parse(client.get("/metrics", headers=BEARER).text)


def test_metrics_need_a_setting_and_a_token(client: FlaskClient) -> None:
    """/metrics needs PLANTSTORE_METRICS=1, and a token with the right `metrics` or all rights."""
    check_error(client.get("/metrics", headers=BEARER), 40401)
    tokens = {"all": Client("all"), "some": Client("some", ["metrics"]), "t": Client("t", ["read"])}
    client = create_app({"PLANTSTORE_METRICS": "1"}, verify_token=tokens.get).test_client()
    check_error(client.get("/metrics"), 40101)
    for token, code in (("all", 200), ("some", 200), ("x", 401), ("t", 403)):
        response = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == code
    assert check_error(response, 40301) == "This token does not have the right to metrics."
    response = client.post("/metrics", headers={"Authorization": "Bearer all"})
    check_error(response, 40501)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_metrics_of_all_operations() -> None:
    """Every request is measured by its operation and outcome: ok, or the number of the error."""
    store: Any = MemoryStore()
    store.add(ROSE_PLANT)
    store.add = Mock(side_effect=[None, PlantExists(1), StoreUnavailable, ZeroDivisionError])
    app = create_app({**ON, "PLANTSTORE_OPERATIONS": ALL}, store=store)
    app.before_request(lambda: ("slower", 429) if "Slower" in request.headers else None)
    client = app.test_client()
    for _ in range(4):
        create(client, ROSE)
    client.post("/plants")
    client.post("/plants", headers={"Slower": "1"})  # A hook of the operator refuses it.
    others = {*ALL} - {"create", "delete"}
    for name in (*others, "delete"):
        perform(client, name)
    for path in ("/plants?limit=0", "/elsewhere", "/metrics"):
        client.get(path, headers=BEARER)
    client.delete("/plants", headers=BEARER)
    metrics = values(client)
    counts = {name for name in metrics if name.startswith(f"{DURATION}_count")}
    outcomes = ("ok", "40004", "40101", "42900", "50301", "50001")
    assert counts == {
        *(series("create", outcome) for outcome in outcomes),
        *(series(operation, "ok") for operation in (*others, "delete", "metrics")),
        series("list", "40006"),
        *(series("", outcome) for outcome in ("40401", "40501")),
    }
    assert {metrics[name] for name in counts} == {1}
    assert metrics[f'{DURATION}_bucket{{le="+Inf",operation="create",outcome="ok"}}'] == 1
    assert 0 < metrics[f'{DURATION}_sum{{operation="create",outcome="ok"}}'] < LIMIT


def test_metrics_name_the_version_and_the_store(measured: FlaskClient, tmp_path: Path) -> None:
    """plantstore_info has the version and the kind of the store, and nothing else of its URL."""
    url = f"sqlite:///{tmp_path}/hunter2.db"
    sqlite = create_app({**ON, "PLANTSTORE_STORE": url}).test_client()
    own = create_app(ON, store=MemoryStore()).test_client()
    for client, kind in ((measured, "memory"), (sqlite, "sqlite"), (own, "MemoryStore")):
        info = f'plantstore_info{{store="{kind}",version="{__version__}"}}'
        assert (values(client)[info], "hunter2" in str(values(client))) == (1, False)


def test_metrics_do_not_clash_with_those_of_a_host(measured: FlaskClient) -> None:
    """Several services, and a host with metrics of the same names, can be in one process."""
    own = Histogram(DURATION, "of the host")
    try:
        other = create_app(ON).test_client()
        create(other, ROSE)
        assert CREATED not in values(measured)
        assert values(other)[CREATED] == 1
        assert "of the host" not in other.get("/metrics", headers=BEARER).text
    finally:
        REGISTRY.unregister(own)


def test_metrics_of_processes_that_do_not_share_them(measured: FlaskClient) -> None:
    """If several processes serve without a folder for their metrics, /metrics is 50302."""
    environ = {"wsgi.multiprocess": True}
    response = measured.get("/metrics", headers=BEARER, environ_overrides=environ)
    assert "PROMETHEUS_MULTIPROC_DIR" in check_error(response, 50302)


def test_example_queries(measured: FlaskClient) -> None:
    """The queries of docs/operating.md use metrics and labels of the service."""
    create(measured, ROSE)
    metrics = "".join(values(measured))
    queries = recipe("queries")
    assert {*re.findall(r"plantstore_\w+", queries)} == {f"{DURATION}_count", f"{DURATION}_bucket"}
    for name in re.findall(r"plantstore_\w+|\w+(?==)|(?<=by \()\w+", queries):
        assert name in metrics


def create_plants(server: Server) -> None:
    """Create twenty plants."""
    assert [status(server, "s3cret") for _ in range(20)] == [200] * 20


@pytest.mark.parametrize(
    ("folder", "workers"), [(None, "2"), ("", "1"), ("missing", "1"), ("file", "2")]
)
def test_check_without_a_folder_for_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, workers: str
) -> None:
    """The check refuses metrics of several workers without a folder, and a folder that is none."""
    (tmp_path / "file").touch()
    for name, value in {**ON, "WEB_CONCURRENCY": workers}.items():
        monkeypatch.setenv(name, value)
    if folder is not None:
        monkeypatch.setenv(FOLDER, folder and str(tmp_path / folder))
    line = f"error  PLANTSTORE_METRICS: set {FOLDER} to an empty folder that this user can write"
    assert line in invoke("check").stdout
    monkeypatch.setenv("PLANTSTORE_METRICS", "0")
    assert FOLDER not in invoke("check").stdout


@pytest.mark.server
def test_one_worker_without_a_folder_for_metrics(url: str) -> None:
    """Without a folder, a start with several workers is refused, and SIGTTIN adds no worker."""
    serve = ("plantstore", "serve", "--bind=127.0.0.1:0", f"--store={url}")
    message = f"plantstore: PLANTSTORE_METRICS: set {FOLDER} to an empty folder"
    assert message in refused(*serve, "--workers=2", folder=ROOT, **ON)
    with Server(*serve, cwd=ROOT, **ON) as server:
        assert status(server, TOKEN) == 200
        server.signal(signal.SIGTTIN)
        server.wait_for(message)
        assert read(server)[CREATED] == len(workers(server)) == 1


@pytest.mark.server
def test_metrics_of_several_workers(tmp_path: Path) -> None:
    """The values are the sums of all workers, also of those that were killed or reloaded.

    The gauges of a worker that has ended, which other packages may share, are removed.
    """
    folder = tmp_path / "metrics"
    folder.mkdir()
    with served(tmp_path, **ON, **{FOLDER: str(folder)}) as server:
        create_plants(server)
        assert read(server)[CREATED] == 20
        for worker in workers(server):
            (folder / f"gauge_livesum_{worker}.db").touch()
        kill_workers(server)
        assert not [*folder.glob("gauge_*")]
        create_plants(server)
        old = workers(server)
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
        create_plants(server)
        assert read(server)[CREATED] == 60
        assert read(server)[series("metrics", "ok")] >= 2


# Creates two plants and reads the metrics in a process that shares them.
SHARING = f"""
import os, pathlib, sys
from plantstore import create_app
from tests.support.responses import create
from tests.support.sites import BEARER, ROSE
file = f"histogram_{{int(sys.argv[1]) or os.getpid()}}.db"
pathlib.Path(os.environ["{FOLDER}"], file).write_bytes(b"damaged!")
client = create_app({ON}).test_client()
print(*(create(client, {{**ROSE, "id": id}}).status_code for id in range(2)))
print(client.get("/metrics", headers=BEARER).text)
"""


@pytest.mark.parametrize("process", ["0", "1"])
def test_damaged_file(tmp_path: Path, process: str) -> None:
    """With a damaged file of metrics, plants are created, and /metrics is 50302, not a failure.

    If it is that of the process itself, the log says in one line that it has no metrics.
    """
    environment = {**os.environ, **ANYWHERE, FOLDER: str(tmp_path)}
    command = [sys.executable, "-c", SHARING, process]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("200 200\n")
    assert done.stderr.count("This process has no metrics: ") == (process == "0")
    assert "50302" in done.stdout
    assert "50302: The metrics cannot be read: " in done.stderr


@pytest.mark.server
def test_metrics_of_two_services_in_each_worker(tmp_path: Path) -> None:
    """Two services in each worker of a preloaded application share their metrics."""
    (tmp_path / "two.py").write_text(TWO_SERVICES)
    folder = {FOLDER: str(tmp_path), "PLANTSTORE_STORE": f"sqlite:///{tmp_path}/plants.sqlite"}
    options = ("--workers=2", "--preload", "--pythonpath", str(tmp_path), "two:app")
    with Gunicorn(*options, **ON, **folder) as server:
        for _ in range(20):
            for path in (b"/plants", b"/garden/plants"):
                assert server.request(post(new_rose()).replace(b"/plants", path)).status == 200
        metrics = read(server)
        assert (metrics[CREATED], "other_total" in metrics) == (40, False)


@pytest.mark.server
def test_full_disk(tmp_path: Path) -> None:
    """On a full disk, plants are created; workers without a file have no metrics."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "plantstore", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        with served(tmp_path, **ON, **{FOLDER: str(folder)}) as server:
            wait_until(lambda: status(server, TOKEN) == 200 and len([*folder.glob("*.db")]) == 2)
            created = read(server)[CREATED]
            with suppress(OSError), (folder / "other").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for request in (GET, b"PUT /plants HTTP/1.1\r\nHost: x\r\n\r\n") * 20:
                server.request(request)  # These have other series.
            create_plants(server)
            assert read(server)[CREATED] == created + 20
            assert "Worker" not in server.log.split("Booting worker")[-1]
            kill_workers(server)
            create_plants(server)
            assert 1 <= server.log.count(f"This process has no metrics: {os.strerror(28)}") <= 2
            assert read(server)[CREATED] == created + 20
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
