"""The metrics of the standalone service."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest
from flask.testing import FlaskClient
from prometheus_client import REGISTRY, Counter
from prometheus_client.parser import text_string_to_metric_families

from plantstore import MemoryStore, Plant, Store, StoreUnavailable, create_app
from plantstore.observability.metrics import MeasuredStore, make_metrics
from plantstore.testing import StoreContract
from tests.support.commands import refused
from tests.support.reloading import kill_workers, served, status, workers
from tests.support.responses import check_error, create
from tests.support.serving import Gunicorn, Server, post
from tests.support.sites import BEARER, LILY, ROSE, TOKEN, new_rose
from tests.support.waiting import wait_until

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n"
CREATED = 'plantstore_creates_total{outcome="created"}'
IN_PROGRESS = "plantstore_requests_in_progress"


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
    return create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": 1}).test_client()


def values(client: FlaskClient) -> dict[str, float]:
    """Return the metrics of an application."""
    return parse(client.get("/metrics", headers=BEARER).text)


def test_metrics_are_off_by_default(client: FlaskClient) -> None:
    """Without PLANTSTORE_METRICS=1, there is no /metrics, and prometheus-client is not needed."""
    check_error(client.get("/metrics", headers=BEARER), 40401)
    code = (
        "import sys, plantstore; plantstore.create_app(); print('prometheus_client' in sys.modules)"
    )
    environment = {**os.environ, "PLANTSTORE_TOKENS": "t"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_metrics_need_a_token(measured: FlaskClient) -> None:
    """/metrics needs a token like every operation, and has only GET and HEAD."""
    check_error(measured.get("/metrics"), 40101)
    check_error(measured.get("/metrics", headers={"Authorization": "Bearer x"}), 40102)
    response = measured.post("/metrics", headers=BEARER)
    check_error(response, 40501)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert measured.options("/metrics").status_code == 200


def test_metrics_of_creates(measured: FlaskClient) -> None:
    """Creates are counted by outcome, and their duration and that of the store are measured."""
    create(measured, ROSE)
    create(measured, ROSE)
    create(measured, {})
    measured.post("/plants")
    measured.get("/plants", headers=BEARER)
    measured.options("/plants")
    metrics = values(measured)
    for outcome in ("created", "40004", "40003", "40101"):
        assert metrics[f'plantstore_creates_total{{outcome="{outcome}"}}'] == 1
    assert metrics["plantstore_create_duration_seconds_count"] == 4
    assert metrics['plantstore_create_duration_seconds_bucket{le="+Inf"}'] == 4
    assert metrics['plantstore_store_duration_seconds_count{operation="add"}'] == 2
    assert metrics[IN_PROGRESS] == 1  # The request for the metrics.


def test_metrics_of_a_failure() -> None:
    """A failure of the store or of the service is counted, and is not in progress for ever."""

    class FailingStore(MemoryStore):
        def add(self, plant: Plant) -> None:
            raise StoreUnavailable if plant == LILY else ZeroDivisionError

    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": "1"}
    client = create_app(config, store=FailingStore()).test_client()
    check_error(create(client, LILY.members() | {"tag": "x"}), 50001)
    check_error(create(client, {"id": LILY.id, "name": LILY.name}), 50301)
    metrics = values(client)
    for outcome in ("50001", "50301"):
        assert metrics[f'plantstore_creates_total{{outcome="{outcome}"}}'] == 1
    assert metrics[IN_PROGRESS] == 1


def test_metrics_do_not_clash_with_those_of_a_host(measured: FlaskClient) -> None:
    """Several services, and a host with metrics of the same names, can be in one process."""
    own = Counter("plantstore_creates", "of the host", ["outcome"])
    try:
        other = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": 1}).test_client()
        create(other, ROSE)
        assert (values(measured)[CREATED], values(other)[CREATED]) == (0, 1)
        assert "of the host" not in other.get("/metrics", headers=BEARER).text
    finally:
        REGISTRY.unregister(own)


def test_outcome_of_an_operators_hook(measured: FlaskClient) -> None:
    """A request that a hook of the operator answers is neither created nor an Error."""
    measured.application.before_request(lambda: ("slower", 429))
    create(measured, ROSE)
    measured.application.before_request_funcs[None].pop()
    metrics = values(measured)
    assert metrics['plantstore_creates_total{outcome="other"}'] == 1
    assert metrics[CREATED] == 0


def test_missing_folder_of_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the folder for shared metrics is missing, the service has metrics of its own process."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "missing"))
    client = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": 1}).test_client()
    create(client, ROSE)
    assert values(client)[CREATED] == 1
    (message,) = caplog.messages
    assert message == f"The metrics of this process cannot be shared: {os.strerror(2)}"


def test_metrics_of_processes_that_do_not_share_them(measured: FlaskClient) -> None:
    """If several processes serve without a folder for their metrics, /metrics is 50302."""
    environ = {"wsgi.multiprocess": True}
    response = measured.get("/metrics", headers=BEARER, environ_overrides=environ)
    assert "PROMETHEUS_MULTIPROC_DIR" in check_error(response, 50302)


class TestMeasuredStore(StoreContract):
    """The contract test suite for a store that is measured."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        return MeasuredStore(MemoryStore(), make_metrics().add_seconds)


def test_measured_store_is_the_store(measured: FlaskClient) -> None:
    """With metrics, the service has the same store, of which several processes are refused."""
    environ = {"wsgi.multiprocess": True}
    check_error(create(measured, ROSE, environ_overrides=environ), 50302)
    assert create(measured, ROSE).status_code == 200
    assert len(measured.application.extensions["plantstore"]) == 1


@pytest.mark.server
def test_metrics_of_several_workers(tmp_path: Path) -> None:
    """The values are the sums of all workers, also of those that were killed or reloaded.

    Requests in progress are those of living workers. The folder of the metrics is removed at the
    end.
    """
    (tmp_path / "tmp").mkdir()
    with served(
        tmp_path,
        PLANTSTORE_TOKENS="s3cret",
        PLANTSTORE_METRICS="1",
        TMPDIR=str(tmp_path / "tmp"),
    ) as server:
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        assert read(server)[CREATED] == 20
        with server.connect() as connection:
            connection.send(post(b"", length=100))  # Its body never arrives.
            wait_until(lambda: read(server)[IN_PROGRESS] == 2)
            kill_workers(server)
        wait_until(lambda: read(server)[IN_PROGRESS] == 1)
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        old = workers(server)
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        metrics = read(server)
        assert metrics[CREATED] == 60
        assert metrics['plantstore_store_duration_seconds_count{operation="add"}'] == 60
        assert metrics[IN_PROGRESS] == 1
        assert [*(tmp_path / "tmp").glob("plantstore-metrics-*")] != []
    wait_until(lambda: [*(tmp_path / "tmp").glob("plantstore-metrics-*")] == [])


@pytest.mark.server
@pytest.mark.parametrize("config", ["preload_app = True", "import prometheus_client"])
def test_metrics_of_an_application_that_is_loaded_early(tmp_path: Path, config: str) -> None:
    """The metrics are those of all workers, also if the main process loads the application."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    with served(tmp_path, config=config, **environment) as server:
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        assert {read(server)[CREATED] for _ in range(10)} == {20}


@pytest.mark.server
def test_metrics_folder_that_disappears(tmp_path: Path) -> None:
    """If something removes the files of the metrics, creates succeed, also in new workers."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    with served(tmp_path, TMPDIR=str(tmp_path), **environment) as server:
        (folder,) = tmp_path.glob("plantstore-metrics-*")
        rmtree(folder)
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        kill_workers(server)
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        assert read(server)[CREATED] == 20
        rmtree(folder)
        folder.touch()
        kill_workers(server)
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        server.wait_for("A worker cannot share its metrics: ")
        assert server.request(GET).error == 50302


@pytest.mark.server
def test_metrics_with_a_hook_of_the_operator(tmp_path: Path) -> None:
    """If workers cannot share their metrics, /metrics is 50302, and plants are created."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    with served(tmp_path, config="def pre_fork(server, worker): pass", **environment) as server:
        assert status(server, "s3cret") == 200
        assert server.request(GET).error == 50302
        kill_workers(server)
        assert status(server, "s3cret") == 200


@pytest.mark.server
def test_metrics_of_two_services_in_a_worker(tmp_path: Path) -> None:
    """Two services in one worker under gunicorn share their metrics."""
    code = (
        "from plantstore import create_app\n"
        "from werkzeug.middleware.dispatcher import DispatcherMiddleware\n"
        "from prometheus_client import Counter\n"
        "Counter('other', 'of the host').inc()\n"
        "app = DispatcherMiddleware(create_app(), {'/garden': create_app()})\n"
    )
    (tmp_path / "two.py").write_text(code)
    arguments = ("-c", "python:plantstore.server.config", "--pythonpath", str(tmp_path), "two:app")
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    with Gunicorn(*arguments, **environment) as server:
        rose = post(new_rose())
        for request in (rose, rose.replace(b"/plants", b"/garden/plants")):
            assert server.request(request).status == 200
        metrics = read(server)
        assert (metrics[CREATED], "other_total" in metrics) == (2, False)


@pytest.mark.server
def test_full_disk(tmp_path: Path) -> None:
    """The files of the metrics have their space on the disk, so that no write can fail."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    with served(tmp_path, TMPDIR=str(tmp_path), **environment) as server:
        assert status(server, "s3cret") == 200
        (folder,) = tmp_path.glob("plantstore-metrics-*")
        files = [path.stat() for path in folder.iterdir()]
        assert len(files) == 9  # Three of each worker, and three of the main process.
        assert all(file.st_blocks * 512 >= file.st_size for file in files)


def test_failed_start_leaves_no_files(tmp_path: Path) -> None:
    """If the service cannot start, no files of the metrics remain."""
    environment = {"PLANTSTORE_METRICS": "1", "TMPDIR": str(tmp_path)}
    refused("plantstore", "serve", folder=tmp_path, **environment)
    environment = {"PLANTSTORE_METRICS": "yes", "PLANTSTORE_TOKENS": "t"}
    line = refused("plantstore", "serve", folder=tmp_path, **environment)
    assert line == "Error: plantstore: PLANTSTORE_METRICS must be 0 or 1"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.server
def test_metrics_that_a_reload_turns_on(tmp_path: Path) -> None:
    """A reload can turn the metrics on."""
    with served(tmp_path, PLANTSTORE_TOKENS="s3cret") as server:
        assert server.request(GET).status == 404
        (tmp_path / "own.py").write_text("raw_env = ['PLANTSTORE_METRICS=1']")
        old = workers(server)
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
        assert [status(server, "s3cret") for _ in range(20)] == [200] * 20
        assert read(server)[CREATED] == 20
