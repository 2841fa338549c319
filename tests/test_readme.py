"""The README is true: its commands are run, and its tables are those of the code."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from flask import Flask

from plantstore import open_store
from plantstore.errors import ERRORS
from plantstore.settings import Settings

from .conftest import BEARER
from .fresh import ENVIRONMENT, copy_project, run
from .serving import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the README's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def rows(first: str) -> list[list[str]]:
    """Return the rows of the README's table whose first column has this heading."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[1].splitlines()
    ]


def test_serving_and_adding_a_plant(tmp_path: Path) -> None:
    """The command that serves works on a fresh machine, and so do all that come after it."""
    if listening(8000):
        pytest.skip("port 8000, which the README names, is taken")
    folder = copy_project(tmp_path)
    serve, _, add, chores = blocks("sh")
    with subprocess.Popen(
        ["bash", "-c", serve], cwd=folder, env=ENVIRONMENT, start_new_session=True
    ) as serving:
        try:
            wait_for_port(8000, serving)
            assert [run(add, folder), run(add, folder)] == [
                answer.strip() for answer in blocks("json")
            ]
            token, digest = run(".venv/bin/plantstore token", folder).splitlines()
            assert digest.startswith("sha256:")
            assert run(chores, folder).splitlines()[-1] == "1\tMonstera\tindoor"
            for store, extra in [("postgresql", "postgresql"), ("mysql", "mysql")]:
                refused = run(
                    f".venv/bin/plantstore --store {store}://x/y count 2>&1 || true", folder
                )
                assert f"pip install 'plantstore[{extra}]'" in refused
        finally:
            os.killpg(serving.pid, signal.SIGTERM)


def listening(port: int) -> bool:
    """Tell whether anything listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_for_port(port: int, serving: subprocess.Popen[bytes]) -> None:
    """Return when something listens on a port, which takes a download or two."""
    until = time.monotonic() + 150
    while not listening(port):
        assert serving.poll() is None, "the command ended"
        assert time.monotonic() < until, "nobody listens"
        time.sleep(0.1)


def test_the_command_that_tests_is_the_one_of_ci() -> None:
    """The README's other command is the one that continuous integration runs, word for word."""
    test = blocks("sh")[1]
    assert re.fullmatch(r"python3 .*pytest\n", test)
    assert "grep -m 1 '^python3 .*pytest$' README.md" in (ROOT / ".ci" / "run").read_text()


def test_embedding() -> None:
    """The lines for one's own site embed the store at the path that they name."""
    (lines,) = blocks("python")
    namespace: dict[str, Flask] = {"__name__": "app"}  # type: ignore[dict-item]
    exec(lines, namespace)
    client = namespace["app"].test_client()
    new = {"id": 1, "name": "Monstera"}
    assert client.post("/garden/plants", json=new, headers=BEARER).status_code == 200


def test_the_table_of_errors() -> None:
    """The README's table has every error there is, with its status."""
    table = [(int(error), int(status)) for error, status, _ in rows("error")]
    assert table == [(error, error // 100) for error in ERRORS]


def test_the_table_of_stores() -> None:
    """Each store of the README's table can be opened by a URL such as stands there."""
    for url, *_ in rows("store"):
        assert open_store(url).one_process == (url == "memory://")


def test_the_table_of_settings() -> None:
    """The README's table has every setting there is, with its default."""
    assert {name: default for name, _, default in rows("name")} == {
        "PLANTSTORE_TOKENS": "none",
        "PLANTSTORE_TOKENS_FILE": "none",
        "PLANTSTORE_STORE": Settings.store_url,
        "PLANTSTORE_MAX_BODY": str(Settings.max_body),
    }
    source = (ROOT / "plantstore" / "settings.py").read_text()
    assert {name for name, *_ in rows("name")} == set(re.findall("PLANTSTORE_[A-Z_]+", source))
