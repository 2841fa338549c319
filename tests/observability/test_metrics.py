"""The metrics of the standalone service."""

import os
import re
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest.mock import Mock

import pytest
from flask import request
from flask.testing import FlaskClient
from prometheus_client import REGISTRY, Histogram
from prometheus_client.parser import text_string_to_metric_families

from plantstore import Client, MemoryStore, PlantExists, StoreUnavailable, __version__, create_app
from tests.support.readme import recipe
from tests.support.reloading import ANYWHERE, kill_workers, served, status, workers
from tests.support.responses import ALL, check_error, create, perform
from tests.support.serving import LIMIT, Gunicorn, Server, post
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, TOKEN, new_rose
from tests.support.waiting import wait_until

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


def restart_workers(server: Server) -> None:
    """Reload the service; return when all workers are new."""
    old = workers(server)
    server.signal(signal.SIGHUP)
    wait_until(lambda: not old & workers(server))


@pytest.mark.server
def test_metrics_of_several_workers(tmp_path: Path) -> None:
    """The values are the sums of all workers, also of those that were killed or reloaded.

    New workers go on with the files of ended ones, so there are not more files than workers.
    """
    (tmp_path / "tmp").mkdir()
    settings = {"PLANTSTORE_TOKENS": TOKEN, "TMPDIR": str(tmp_path / "tmp")}
    with served(tmp_path, **settings) as server:
        assert server.request(GET).status == 404
        (tmp_path / "own.py").write_text("raw_env = ['PLANTSTORE_METRICS=1']")
        restart_workers(server)
        create_plants(server)
        assert read(server)[CREATED] == 20
        kill_workers(server)
        create_plants(server)
        restart_workers(server)
        create_plants(server)
        assert read(server)[CREATED] == 60
        assert len([*(tmp_path / "tmp").glob("plantstore-metrics-*/*.db")]) <= 4  # In a reload.
        assert read(server)[series("metrics", "ok")] >= 2
        (folder,) = (tmp_path / "tmp").glob("plantstore-metrics-*")
    wait_until(lambda: not folder.exists())


@pytest.mark.server
def test_metrics_folder_that_disappears(tmp_path: Path) -> None:
    """Without the folder of its metrics, the service goes on, and says so; /metrics is 50302."""
    with served(tmp_path, TMPDIR=str(tmp_path), **ON) as server:
        (folder,) = tmp_path.glob("plantstore-metrics-*")
        rmtree(folder)
        create_plants(server)
        kill_workers(server)
        create_plants(server)
        assert 1 <= server.log.count("This process has no metrics: ") <= 4
        assert server.request(GET).error == 50302


# Creates two plants and reads the metrics in a process that shares them.
SHARING = """
from plantstore import create_app
from tests.support.responses import create
from tests.support.sites import BEARER, ROSE, TOKEN
client = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": "1"}).test_client()
print(*(create(client, {**ROSE, "id": id}).status_code for id in range(2)))
print(client.get("/metrics", headers=BEARER).text)
"""


@pytest.mark.posix
@pytest.mark.parametrize("is_own", [True, False])
def test_damaged_file(tmp_path: Path, is_own: bool) -> None:
    """With a damaged file of metrics, plants are created, and /metrics is 50302, not a failure.

    If the process would go on with the file, the log says in one line that it has no metrics.
    """
    with subprocess.Popen(["true"]) as ended:
        ended.wait(LIMIT)
    name = f"histogram_{ended.pid if is_own else 1}.db"
    (tmp_path / name).write_bytes(struct.pack("2i", 1 << 30, 0))
    environment = {**os.environ, **ANYWHERE, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SHARING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("200 200\n")
    assert done.stderr.count("This process has no metrics: ") == is_own
    assert "50302" in done.stdout
    assert "50302: The metrics cannot be read: " in done.stderr


@pytest.mark.server
def test_metrics_of_workers_of_another_user(public_folder: Path) -> None:
    """Workers of another user, also with two services in each of them, share their metrics."""
    if os.geteuid() != 0:
        pytest.skip("only root can start workers as another user")
    (public_folder / "tmp").mkdir()
    store, folder = f"sqlite:///{public_folder}/plants.db", str(public_folder / "tmp")
    config = "import prometheus_client\nfrom plantstore.server.config import *"
    (public_folder / "own.py").write_text(config)
    (public_folder / "two.py").write_text(TWO_SERVICES)
    arguments = ["--workers=2", "--user=nobody", "--preload", "-c", f"{public_folder}/own.py"]
    arguments += ["--pythonpath", str(public_folder), "two:app"]
    with Gunicorn(*arguments, **ON, PLANTSTORE_STORE=store, TMPDIR=folder) as server:
        create_plants(server)
        for _ in range(4):
            assert server.request(post(new_rose()).replace(b"/pl", b"/garden/pl")).status == 200
        metrics = read(server)
        assert (metrics[CREATED], "other_total" in metrics) == (24, False)


@pytest.mark.server
def test_no_folder_for_metrics(tmp_path: Path) -> None:
    """If the folder of the metrics cannot be made, the service goes on, and uses no other one."""
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()
    hook = "import tempfile\ntempfile.tempdir = 'file'\nworker_tmp_dir = '.'"
    other = str(tmp_path / "other")
    with served(tmp_path, config=hook, PROMETHEUS_MULTIPROC_DIR=other, **ON) as server:
        server.wait_for(r"\[ERROR\] The workers cannot share their metrics: Not a directory")
        assert status(server, "s3cret") == 200
        assert server.request(GET).error == 50302
    assert [*(tmp_path / "other").iterdir()] == []


@pytest.mark.server
def test_full_disk(tmp_path: Path) -> None:
    """On a full disk, plants are created; workers without a file have no metrics."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "plantstore", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        with served(tmp_path, TMPDIR=str(folder), **ON) as server:
            files = partial(folder.rglob, "histogram_*.db")
            wait_until(lambda: status(server, "s3cret") == 200 and len([*files()]) == 2)
            created = read(server)[CREATED]
            fill(folder / "other")
            for request in (GET, b"PUT /plants HTTP/1.1\r\nHost: x\r\n\r\n") * 20:
                server.request(request)  # These have other series.
            create_plants(server)
            assert read(server)[CREATED] == created + 20
            assert "Worker" not in server.log.split("Booting worker")[-1]
            kill_workers(server)
            fill(folder / "another")
            create_plants(server)
            assert read(server)[CREATED] == created + 40  # In the files of the earlier workers.
            server.signal(signal.SIGTTIN)  # Another worker has no file.
            fault = f"This process has no metrics: {os.strerror(28)}"
            wait_until(lambda: status(server, "s3cret") == 200 and fault in server.log)
            create_plants(server)
            assert server.log.count(fault) == 1
            assert read(server)[CREATED] >= created + 40
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
