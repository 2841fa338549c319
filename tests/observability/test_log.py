"""The log of the service, and the ids of requests."""

import json
import logging
import re
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, abort, g
from flask.testing import FlaskClient

from plantstore import MemoryStore, StoreUnavailable, create_app
from plantstore.observability.log_format import TextFormatter
from tests.support.log import LINE
from tests.support.responses import check_error, create
from tests.support.serving import LIMIT, ROOT, Granian, Gunicorn, post
from tests.support.sites import BEARER, ROSE, TOKEN, make_site, new_rose
from tests.support.stores import FailingStore

ID = "X-Request-ID"


@pytest.mark.parametrize("id", ["a", "abc-1.2_3~4+5/6=7:8@9", "Root=1-67891233-abcdef", "x" * 128])
def test_request_id_of_the_client(site: Flask, id: str) -> None:
    """A reasonable X-Request-ID is in the response, in the log line and in g."""
    seen = []
    site.teardown_request(lambda error: seen.append(g.plantstore_request_id))
    response = site.test_client().post("/garden/plants", headers={ID: id})
    assert (response.headers.getlist(ID), seen) == ([id], [id])


@pytest.mark.parametrize(
    "id",
    ["", " ", "-a", "a b", "a,b", "é", "x" * 129, TOKEN, "x-plt_0Aa", "<a>", '"a"', "%0a"],
)
def test_unreasonable_request_id_is_replaced(client: FlaskClient, id: str) -> None:
    """An unreasonable X-Request-ID, or one with a token, is replaced by a random id."""
    headers = BEARER | {ID: id.encode().decode("latin-1")}
    ids = {client.post("/plants", headers=headers).headers[ID] for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", made) for made in ids)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, "/plants") for method in ("POST", "GET", "HEAD", "OPTIONS", "BREW")],
        ("GET", "/healthz"),
        ("POST", "/readyz"),
        ("GET", "/nothing"),
    ],
)
def test_every_response_has_one_request_id(client: FlaskClient, method: str, path: str) -> None:
    """Every response of the service has one X-Request-ID, whether accepted or refused."""
    response = client.open(path, method=method, headers={ID: "abc"})
    assert response.headers.getlist(ID) == ["abc"]


def test_request_id_of_a_site_stays(site: Flask) -> None:
    """The pages of a host site get no X-Request-ID, and a site may set its own."""
    client = site.test_client()
    assert ID not in client.get("/").headers
    site = make_site()
    site.after_request(lambda response: response.headers.set(ID, "of the site") or response)
    assert create(site.test_client(), ROSE).headers.getlist(ID) == ["of the site"]


def test_refusal_is_logged_at_info(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is one line at INFO: its number, the client, the address and the request id."""
    caplog.set_level("INFO", "plantstore")
    create(client, ROSE)
    caplog.clear()
    known: dict[str, Any] = {"headers": BEARER, "content_type": "application/json"}
    for request, number, name in (
        ({**known, "json": ROSE}, 40004, "'token-1'"),
        ({**known, "json": {"id": 1, "name": "hunter2", "tag": 5}}, 40003, "'token-1'"),
        ({**known, "data": "{hunter2"}, 40002, "'token-1'"),
        ({"headers": {"Authorization": "Basic hunter2"}}, 40101, "None"),
        ({"headers": {"Host": "hunter 2"}}, 40005, "None"),
    ):
        options: dict[str, Any] = {**request}
        response = client.post("/plants", **options)
        check_error(response, number)
        (record,) = caplog.records
        assert record.levelno == logging.INFO
        about = f" (client: {name}, address: '127.0.0.1', request: {response.headers[ID]})"
        assert record.getMessage().startswith(f"{number}: ")
        assert record.getMessage().endswith(about)
        caplog.clear()
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("error", "number"),
    [(StoreUnavailable("no disk"), 50301), (ZeroDivisionError("no disk"), 50001)],
)
@pytest.mark.parametrize("standalone", [True, False])
def test_failure_is_logged_with_a_traceback(
    error: Exception, number: int, standalone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A 5xx is logged at ERROR with a traceback and the request id; standalone, only once."""
    store = FailingStore(error)
    service = create_app({"PLANTSTORE_TOKENS": TOKEN}, store=store)
    app = service if standalone else make_site(store=store)
    response = create(app.test_client(), ROSE)
    check_error(response, number)
    record = caplog.records[-1]
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"{number}: ")
    assert response.headers[ID] in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert len(caplog.records) == (1 if standalone or number != 50001 else 2)


def test_failure_outside_the_blueprints_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """An exception at any path of the standalone service is 50001, and logged once."""
    app = create_app({"PLANTSTORE_TOKENS": TOKEN})

    @app.before_request
    def fail() -> None:
        raise ZeroDivisionError

    check_error(app.test_client().get("/nothing"), 50001)
    (record,) = caplog.records
    assert "ZeroDivisionError" in caplog.text


def test_cause_of_an_unavailable_store_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The error of a driver, which may have the values of a plant, is not in the traceback."""

    class DriverStore(MemoryStore):
        def add(self, plant: Any) -> None:
            try:
                raise ValueError(f"cannot store {plant.name}")
            except ValueError as error:
                raise StoreUnavailable("the driver failed") from error

    client = create_app({"PLANTSTORE_TOKENS": TOKEN}, store=DriverStore()).test_client()
    check_error(create(client, {"id": 1, "name": "hunter2"}), 50301)
    assert "the driver failed" in caplog.text
    assert "hunter2" not in caplog.text


def test_refusal_of_the_site_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If the site refuses a request, the line has its number, and a 5xx a traceback."""
    caplog.set_level("INFO", "plantstore")
    for number, level, has_traceback in (
        (42900, logging.INFO, False),
        (50300, logging.ERROR, True),
    ):
        site = make_site()
        site.before_request(partial(abort, number // 100))
        check_error(create(site.test_client(), ROSE), number)
        (record,) = caplog.records
        assert (record.levelno, record.exc_info is not None) == (level, has_traceback)
        assert record.getMessage().startswith(f"{number}: The site refuses the request: ")
        caplog.clear()


def lines_of(log: str) -> list[str]:
    """Return the lines of a log, each with its further lines."""
    return re.split(r"\n(?!  )", log.rstrip("\n"))


@pytest.mark.server
def test_one_format(tmp_path: Path) -> None:
    """Each line of gunicorn, of the access log and of the service has time, process and level."""
    arguments = ("--access-logfile", "-", "--log-level", "debug")
    environment = {"PLANTSTORE_TOKENS": TOKEN, "TZ": "Asia/Tokyo"}
    url = f"sqlite:///{tmp_path}/missing/plants.db"
    with Gunicorn(*arguments, **environment, PLANTSTORE_STORE=url) as server:
        response = server.request(post(new_rose(), "X-Request-ID: abc-1"))
        assert response.error == 50301
        server.wait_for('"POST /plants HTTP/1.1" 503 .* abc-1')
        forged = post(b"").replace(b"/plants", b"/%0a[2026]%1b")
        assert server.request(forged).status == 404
        server.wait_for(r'"POST /\n  \[2026\]\\u001b HTTP/1.1" 404')
        log = server.log
    lines = lines_of(log)
    assert all(LINE.match(line) for line in lines), log
    (line,) = [line for line in lines if "] [ERROR] 50301: " in line]
    assert "request: abc-1)\n  Traceback (most recent call last):\n" in line
    assert TOKEN not in log
    assert any(" Booting worker " in line for line in lines)


@pytest.mark.server
def test_json_lines(tmp_path: Path) -> None:
    """With PLANTSTORE_LOG=json, each line is a JSON object, also a traceback and an access."""
    url = f"sqlite:///{tmp_path}/missing/plants.db"
    with Gunicorn(
        *("--access-logfile", "-", "--env", "PLANTSTORE_LOG=json"),
        PLANTSTORE_TOKENS=TOKEN,
        PLANTSTORE_STORE=url,
    ) as server:
        assert server.request(post(new_rose(), "X-Request-ID: abc-1")).error == 50301
        server.wait_for("POST /plants HTTP/1.1.* 503 .* abc-1")
        lines = [json.loads(line) for line in server.log.splitlines()]
    for line in lines:
        assert {"time", "process", "level", "message"} <= {*line}
        assert line["time"].endswith("+00:00")
    (line,) = [line for line in lines if line["message"].startswith("50301: ")]
    assert line["level"] == "ERROR"
    about = {"client": "token-1", "address": "127.0.0.1", "request_id": "abc-1"}
    assert about.items() <= line.items()
    assert line["traceback"].startswith("Traceback (most recent call last):\n")


@pytest.mark.server
def test_lines_of_other_packages(tmp_path: Path) -> None:
    """A warning of Python and a line of another logger have the format of the log, too."""
    (tmp_path / "own.py").write_text(
        "import logging, warnings\n"
        "from plantstore import create_app\n"
        "app = create_app()\n"
        "warnings.warn('a warning\\nof two lines')\n"
        "logging.getLogger('other').error('an error')\n"
    )
    arguments = ("--pythonpath", str(tmp_path), "own:app")
    with Gunicorn(*arguments, PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_LOG="json") as server:
        server.wait_for('"an error"')
        messages = [json.loads(line)["message"] for line in server.log.splitlines()]
    assert any("a warning\nof two lines" in message for message in messages)


@pytest.mark.server
def test_syslog() -> None:
    """The lines that gunicorn sends to syslog have the format of the log."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as syslog:
        syslog.bind(("127.0.0.1", 0))
        syslog.settimeout(LIMIT)
        to = f"udp://127.0.0.1:{syslog.getsockname()[1]}"
        with Gunicorn("--log-syslog", "--log-syslog-to", to, PLANTSTORE_TOKENS=TOKEN) as server:
            assert server.request(b"GET /%0a HTTP/1.1\r\nHost: x\r\n\r\n").status == 404
            while b'"GET /' not in (line := syslog.recv(10_000)):
                pass
    assert re.search(rb"\[\d+\] \[INFO\] 127.0.0.1 \"GET /\n  \*? ?HTTP/1.1\" 404", line)


@pytest.mark.server
def test_logging_configuration_of_the_operator(tmp_path: Path) -> None:
    """If the operator configures all loggers of gunicorn, those of the service are left alone."""
    config = {"loggers": {"plantstore": {"level": "ERROR"}}}
    code = f"from plantstore.server.config import *\nlogconfig_dict = {config}"
    (tmp_path / "own.py").write_text(code)
    arguments = ("-c", str(tmp_path / "own.py"))
    with Gunicorn(*arguments, "wsgi:app", PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(b"{")).error == 40002


@pytest.mark.parametrize("value", ["", "xml", "JSON", 1])
def test_invalid_log_or_metrics_setting_is_refused(value: Any) -> None:
    """PLANTSTORE_LOG is text or json, and PLANTSTORE_METRICS is 0 or 1."""
    with pytest.raises(ValueError, match="^PLANTSTORE_LOG must be text or json$"):
        create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_LOG": value})
    with pytest.raises(ValueError, match="^PLANTSTORE_METRICS must be 0 or 1$"):
        create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_METRICS": str(value) * 2})


@pytest.mark.parametrize(
    ("setting", "module", "extra"),
    [
        ("PLANTSTORE_LOG=json", "pythonjsonlogger", "gunicorn"),
        ("PLANTSTORE_METRICS=1", "prometheus_client", "metrics"),
    ],
)
def test_missing_library_is_named(setting: str, module: str, extra: str) -> None:
    """If the library of a setting is missing, the service says what to install."""
    name, _, value = setting.partition("=")
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from plantstore import create_app\n"
        f"create_app({{{name!r}: {value!r}}}, verify_token={{}}.get)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
    )
    line = done.stderr.splitlines()[-1]
    assert f"SettingsError: {name}: " in line
    assert line.endswith(f"pip install 'plantstore[{extra}]'")


@pytest.mark.server
def test_log_under_another_server() -> None:
    """Under granian, the lines of the service have the same format."""
    with Granian(PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(b"{")).error == 40002
        line = server.wait_for(r".*40002: .*")[0]
    assert LINE.match(line)


def test_text_of_a_client_is_not_a_line_of_the_log() -> None:
    """No text can begin a line of the log, or control a terminal."""
    record = logging.LogRecord("x", logging.INFO, "", 0, "a\n[2026-01-01 \x1b\u2028\r", None, None)
    text = TextFormatter().format(record)
    assert text.endswith("a\n  [2026-01-01 \\u001b\\u2028\\r")
