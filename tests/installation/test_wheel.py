"""The service from the wheel, in an empty environment and an empty folder."""

import subprocess
from pathlib import Path

import pytest

from tests.support.fresh import ENVIRONMENT, copy_project, run
from tests.support.serving import LIMIT, Connection, free_port, listening, post
from tests.support.waiting import wait_until

pytestmark = pytest.mark.install


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an environment that has only the wheel and its extra gunicorn."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    folder = tmp_path_factory.mktemp("empty")
    run(f"python3 -m venv env && env/bin/pip wheel -q --no-deps -w wheel {project}", folder)
    run("env/bin/pip install -q $(echo wheel/*.whl)[gunicorn]", folder)
    return folder


def test_serve_from_the_wheel(installed: Path) -> None:
    """With nothing but the wheel and gunicorn, `plantstore serve` runs, and is protected."""
    port = free_port()
    settings = ENVIRONMENT | {"PLANTSTORE_TOKENS": "s3cret"}
    command = ["env/bin/plantstore", "serve", "--bind", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=installed, env=settings) as server:
        try:
            wait_until(lambda: listening(port))
            silent = [Connection(port) for _ in range(12)]
            with Connection(port) as client:
                client.limit(LIMIT / 10)
                client.send(post(b'{"id":1,"name":"Rose"}'))
                assert client.receive().status == 200
            for connection in silent:
                connection.reset()
        finally:
            server.terminate()
    assert server.returncode == 0


def test_check_and_module_from_the_wheel(installed: Path) -> None:
    """`plantstore check` and `python -m plantstore` run from the wheel in an empty folder."""
    checked = run("PLANTSTORE_TOKENS=s3cret env/bin/plantstore check", installed)
    assert checked.splitlines()[-1] == "ok     Store: memory:// can be used"
    assert len(run("env/bin/python -m plantstore token", installed).splitlines()) == 2


PAGES = """
from plantstore import create_app
client = create_app({"PLANTSTORE_TOKENS": "s3cret"}).test_client()
for path in ("/openapi.json", "/docs", "/docs/docs.css", "/docs/swagger-ui.css"):
    print(client.get(path).status_code)
"""


def test_documentation_from_the_wheel(installed: Path) -> None:
    """The wheel has the OpenAPI document. The page exists if the extra docs is installed."""
    (installed / "pages.py").write_text(PAGES)
    assert run("env/bin/plantstore openapi", installed).startswith('{\n  "openapi": "3.1.0",\n')
    assert run("env/bin/python pages.py", installed).split() == ["200", "404", "404", "404"]
    run("env/bin/pip install -q $(echo wheel/*.whl)[docs]", installed)
    assert run("env/bin/python pages.py", installed).split() == ["200", "200", "200", "200"]
