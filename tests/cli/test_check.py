"""The report of `plantstore check`."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from plantstore import __version__
from tests.support.commands import invoke
from tests.support.databases import UNREACHABLE
from tests.support.reloading import write
from tests.support.users import ordinary_user
from tests.support.waiting import wait_until


def check(*arguments: str, **environment: Any) -> list[str]:
    """Return the lines of `plantstore check` with a token."""
    settings = {"PLANTSTORE_TOKENS": "t", **environment}
    result = invoke("check", *arguments, env=settings)
    lines = result.stdout.splitlines()
    assert result.stderr == ""
    assert result.exit_code == any(line.startswith("error") for line in lines)
    return lines


def test_check_of_right_settings(tmp_path: Path) -> None:
    """`plantstore check` reports line by line what is right, and creates nothing."""
    url = f"sqlite:///{tmp_path}/plants.db"
    own = {"MAX_BODY": 100, "OPERATIONS": "read, create, read", "PROXIES": 2}
    own |= {"METRICS": 1, "LOG": "json"}
    default = {"MAX_BODY": 65536, "OPERATIONS": "create", "PROXIES": 0, "METRICS": 0, "LOG": "text"}
    for given, used in (({}, default), (own, own)):
        settings = {f"PLANTSTORE_{name}": str(value) for name, value in given.items()}
        assert check("--store", url, PLANTSTORE_TOKENS="one,two three", **settings) == [
            f"ok     plantstore {__version__}",
            "ok     Settings: all names are known",
            "ok     Tokens: 3 from PLANTSTORE_TOKENS",
            *(f"ok     PLANTSTORE_{name}: {value}" for name, value in used.items()),
            f"ok     Store: {url} can be used (the first plant creates the file)",
        ]
    assert [*tmp_path.iterdir()] == []


def test_check_of_wrong_settings() -> None:
    """`plantstore check` has one line about each wrong setting, and shows no password."""
    wrong = {"MAX_BODY": "1 MB", "OPERATIONS": "", "PROXIES": "-1", "METRICS": "yes", "LOG": "xml"}
    values = {**wrong, "STORES": "x", "TOKENS": ",", "STORE": UNREACHABLE}
    lines = check(**{f"PLANTSTORE_{name}": value for name, value in values.items()})
    assert lines[1] == "error  PLANTSTORE_STORES is not a setting. Did you mean PLANTSTORE_STORE?"
    assert lines[2].startswith("error  no token is configured: set PLANTSTORE_TOKENS or ")
    for name, line in zip(wrong, lines[3:8], strict=True):
        assert line.startswith(f"error  PLANTSTORE_{name}: must ")
    assert lines[8].startswith("error  Store: postgresql://me@127.0.0.1:1/plants cannot be used n")
    assert "hunter2" not in str(lines)
    assert check("--store=x")[-1].startswith("error  PLANTSTORE_STORE: not the URL of a store")


def test_check_of_the_memory() -> None:
    """`plantstore check` says that plants in memory are lost when the process ends."""
    line = "ok     Store: memory:// can be used (the plants are lost when the process ends)"
    assert check("--store=memory://")[-1] == line


def test_check_of_a_file_of_tokens(tmp_path: Path) -> None:
    """`plantstore check` reports how many tokens a file has, which have expired, or its fault."""
    path = write(tmp_path / "tokens", "one kiosk expires=2020-01-01\ntwo\n")
    found = "ok     Tokens: 2 from PLANTSTORE_TOKENS_FILE (expired: 'kiosk')"
    missing = "error  PLANTSTORE_TOKENS_FILE: No such file or directory"
    for file, line in ((path, found), (tmp_path / "missing", missing)):
        assert check(PLANTSTORE_TOKENS="", PLANTSTORE_TOKENS_FILE=str(file))[2] == line


@pytest.mark.parametrize("table", ["", "CREATE TABLE other (id)"])
def test_check_changes_no_database(tmp_path: Path, table: str) -> None:
    """`plantstore check` changes neither the tables nor the journal of a database."""
    path = tmp_path / "plants.db"
    path.touch()
    with closing(sqlite3.connect(path)) as database:
        database.execute(table)
    before = path.read_bytes()
    for options in ("journal_mode=wal", "mode=rwc&journal_mode=wal"):
        line = f"ok     Store: sqlite:///{path} can be used"
        # On a busy machine, a first check may need more time than a store has.
        wait_until(lambda: check("--store", f"sqlite:///{path}?{options}")[-1] == line)  # noqa: B023
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (before, [path])


def test_check_of_a_store_that_cannot_be_written(public_folder: Path) -> None:
    """`plantstore check` reports a file that this user cannot create or write."""
    (public_folder / "plants.db").touch(0o444)
    public_folder.chmod(0o555)
    reasons = {"plants": "attempt to write a readonly database", "typo": "unable to open database"}
    for name, reason in reasons.items():
        url = f"sqlite:///{public_folder}/{name}.db"
        with ordinary_user():
            line = check("--store", url)[-1]
        assert line.startswith(f"error  Store: {url} cannot be used now: {reason}")
        assert line.endswith(f"{public_folder}/{name}.db")
