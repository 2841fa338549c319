"""The alerts and the dashboard in deploy/, with a real Prometheus."""

import json
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.support.databases import installed
from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT, Gunicorn, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import program, wait_until

pytestmark = pytest.mark.deploy

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


def test_alerts(tmp_path: Path) -> None:
    """Each alert fires when its summary is true, and none when only clients make faults."""
    installed("promtool", "prometheus")
    tests = ROOT / "tests" / "deploy" / "alerts_test.yaml"
    for file in (ALERTS, tests):
        shutil.copy(file, tmp_path)
    run(f"(promtool check rules {ALERTS.name} && promtool test rules {tests.name}) 2>&1", tmp_path)
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert [name for name in names if f"alertname: {name}, " not in tests.read_text()] == []


def has_results(port: int, query: str) -> bool:
    """Return whether a Prometheus responds to a query with results that are numbers."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query})}"
    with suppress(OSError), urlopen(url, timeout=LIMIT) as response:  # noqa: S310
        results = json.load(response)["data"]["result"]
        return bool(results) and all(result["value"][1] != "NaN" for result in results)
    return False


def expressions() -> list[str]:
    """Return the queries of the dashboard, and the metrics of the alerts."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    metrics = re.findall(r"plantstore_\w+", ALERTS.read_text())
    return [query.replace("$__rate_interval", "20s") for query in queries] + sorted({*metrics})


def test_dashboard(tmp_path: Path) -> None:
    """Each query of the dashboard, and each metric of the alerts, has results for a service."""
    database, configuration, port = tmp_path / "plants.db", tmp_path / "own.yml", free_port()
    settings = {"PLANTSTORE_METRICS": "1", "PLANTSTORE_STORE": f"sqlite:///{database}"}
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, **settings) as service:

        def requested(query: str) -> bool:
            assert service.request(READYZ).status
            assert service.request(post(new_rose())).status
            return has_results(port, query)

        text = CONFIGURATION.format(alerts=ALERTS, token=TOKEN, port=service.port)
        configuration.write_text(text)
        command = [installed("prometheus", "prometheus"), "--log.level=error"]
        command += [f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path}/data"]
        with program(port, [*command, f"--web.listen-address=127.0.0.1:{port}"]):
            count = 'plantstore_request_duration_seconds_count{outcome="ok"}'
            wait_until(partial(requested, count))
            database.unlink()
            assert service.request(post(new_rose())).status == 503
            for query in expressions():
                wait_until(partial(requested, query))
