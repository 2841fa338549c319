"""The alerts and the dashboard in deploy/, with a real Prometheus."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.support.serving import LIMIT, ROOT, Gunicorn, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(None in {PROMETHEUS, PROMTOOL}, reason="apt-get install prometheus"),
]

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
READYZ = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
# It asks for the metrics so often that the queries have results after two seconds.
CONFIGURATION = """
global: {{scrape_interval: 500ms}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: plantstore
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def promtool(*arguments: str | Path, folder: Path) -> None:
    """Run promtool in a folder. It must succeed."""
    command = [str(PROMTOOL), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts(tmp_path: Path) -> None:
    """Each alert fires when its summary is true, and none when only clients make faults."""
    for file in (ALERTS, ROOT / "tests" / "deploy" / "alerts_test.yaml"):
        shutil.copy(file, tmp_path)
    promtool("check", "rules", ALERTS.name, folder=tmp_path)
    promtool("test", "rules", "alerts_test.yaml", folder=tmp_path)
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    tested = (ROOT / "tests" / "deploy" / "alerts_test.yaml").read_text()
    assert [name for name in names if f"alertname: {name}\n" not in tested] == []


class Queries:
    """A Prometheus that collects the metrics of a service.

    :param port: its own port.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def has_results(self, query: str) -> bool:
        """Return whether a query has results, and all of them are numbers."""
        with urlopen(f"{self._url}?{urlencode({'query': query})}", timeout=LIMIT) as response:  # noqa: S310
            results: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return bool(results) and all(result["value"][1] != "NaN" for result in results)

    def is_ready(self) -> bool:
        """Return whether Prometheus responds."""
        try:
            return self.has_results("vector(1)")
        except OSError:
            return False


@contextmanager
def prometheus(service: int, folder: Path) -> Iterator[Queries]:
    """Run Prometheus for the service at a port."""
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(CONFIGURATION.format(alerts=ALERTS, token=TOKEN, port=service))
    command = [
        *(str(PROMETHEUS), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    ]
    with subprocess.Popen(command) as process:
        try:
            queries = Queries(port)
            wait_until(queries.is_ready)
            yield queries
        finally:
            process.terminate()


def expressions() -> list[str]:
    """Return the queries of the dashboard, and the metrics of the alerts."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    metrics = re.findall(r"plantstore_\w+", ALERTS.read_text())
    return [query.replace("$__rate_interval", "20s") for query in queries] + sorted({*metrics})


def test_dashboard(tmp_path: Path) -> None:
    """Each query of the dashboard has results for a service that adds plants, and then fails.

    The service has the metrics of the alerts.
    """
    file = tmp_path / "plants.db"
    with (
        Gunicorn(
            PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_METRICS="1", PLANTSTORE_STORE=f"sqlite:///{file}"
        ) as service,
        prometheus(service.port, tmp_path) as queries,
    ):

        def has_results(query: str) -> bool:
            assert service.request(READYZ).status
            assert service.request(post(new_rose())).status
            return queries.has_results(query)

        assert service.request(post(new_rose())).status == 200
        wait_until(partial(has_results, 'plantstore_request_duration_seconds_count{outcome="ok"}'))
        file.unlink()
        assert service.request(post(new_rose())).status == 503
        for query in expressions():
            wait_until(partial(has_results, query))
