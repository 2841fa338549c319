"""The plantstore command."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import Result

from plantstore import StaticTokens, __version__

from .conftest import Run, invoke


def test_token_command_makes_a_random_token() -> None:
    """`plantstore token` prints a new token of 256 bits and its digest.

    It needs no configuration.
    """
    tokens = set()
    for _ in range(10):
        result = invoke("token")
        assert result.exit_code == 0
        token, digest = result.output.splitlines()
        assert len(token) * 6 >= 256
        assert digest == f"sha256:{sha256(token.encode()).hexdigest()}"
        assert StaticTokens([token])(token) == StaticTokens([digest])(token) == "token-1"
        tokens.add(token)
    assert len(tokens) == 10


def test_version_option() -> None:
    """`plantstore --version` prints the installed version."""
    result = invoke("--version")
    assert result.output == f"plantstore {__version__}\n"


def test_add_show_list_count_remove(run: Run) -> None:
    """A plant with any id can be added, shown, listed, counted and removed."""
    for id in ("0", "-5", "-9223372036854775808", "9223372036854775807"):
        assert run("add", id, "Rosé", "--tag", "").exit_code == 0
        assert run("show", id).output == f'{{"id":{id},"name":"Rosé","tag":""}}\n'
        assert run("list").output == f"{id}\tRosé\t\n"
        assert run("count").output == "1\n"
        assert run("remove", id).exit_code == 0
        assert run("count").output == "0\n"


def test_control_characters_are_escaped(run: Run) -> None:
    """Control characters are printed as escapes; printable characters are printed unchanged."""
    assert run("add", "1", "\x1b[2J\x9b1m\t\u202e\n🌵", "--tag", 'a"b\\c').exit_code == 0
    name = r"\u001b[2J\u009b1m\t\u202e\n🌵"
    assert run("list").output == f'1\t{name}\ta"b\\c\n'
    assert run("show", "1").output == f'{{"id":1,"name":"{name}","tag":"a\\"b\\\\c"}}\n'


def failure(result: Result, code: int) -> str:
    """Check that a command failed with this code and no traceback; return its message."""
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr


def test_duplicate_or_missing_plant_is_exit_code_1(run: Run) -> None:
    """Adding a duplicate, and showing or removing a missing plant, fails with exit code 1."""
    assert run("add", "1", "Monstera").exit_code == 0
    assert failure(run("add", "1", "Rose"), 1) == "Error: plant 1 already exists.\n"
    assert failure(run("show", "2"), 1) == "Error: there is no plant 2.\n"
    assert failure(run("remove", "-2"), 1) == "Error: there is no plant -2.\n"
    assert run("show", "1").output == '{"id":1,"name":"Monstera"}\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ["water"],
        ["show", "one"],
        ["show", "9223372036854775808"],
        ["add", "1"],
        ["add", "1", "lone \udc80 surrogate"],
        ["import", "missing.jsonl"],
        ["import", "-", "--format", "xml"],
        ["list", "--store", "foo://me:hunter2@host/db"],
    ],
)
def test_usage_error_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    """A usage error has exit code 2, and its message contains no password."""
    assert "hunter2" not in failure(run(*arguments), 2)


COMMANDS = ["add 1 x", "show 1", "list", "count", "remove 1", "export", "import -"]


@pytest.mark.parametrize("command", COMMANDS)
def test_memory_store_is_refused(command: str) -> None:
    """With memory://, which is the default, every store command fails and says what to set."""
    for before, after in ([], []), (["--store", "memory://"], []), ([], ["--store", "memory://"]):
        result = invoke(*before, *command.split(), *after)
        message = failure(result, 2)
        assert "only the service itself can access the plants" in message
        assert "sqlite:///plants.db" in message


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_unreachable_store_is_exit_code_1(run: Run, command: str, scheme: str) -> None:
    """An unreachable store is exit code 1, with one line that contains no password."""
    url = f"{scheme}://me:hunter2@127.0.0.1:1/plants"
    message = failure(run(*command.split(), "--store", url), 1)
    assert message.startswith("Error: the store is unavailable: ")
    assert message.count("\n") == 1
    assert "hunter2" not in message


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_table_is_exit_code_1(tmp_path: Path, command: str) -> None:
    """A table that cannot store plants is exit code 1, with one line on standard error."""
    with closing(sqlite3.connect(tmp_path / "plants.db")) as database:
        database.execute("CREATE TABLE plants (id BIGINT PRIMARY KEY, title TEXT)")
    error = (
        "Error: the store is not set up for plants: table plants: it has no column name and no"
        " column tag\n"
    )
    arguments = ["--store", f"sqlite:///{tmp_path}/plants.db", *command.split()]
    plant = b'{"id": 1, "name": "x"}'
    assert failure(invoke(*arguments, input=plant), 1) == error
    # Without pytest, which shows the log by itself.
    start = [sys.executable, "-c", "from plantstore.cli import main; main()"]
    result = subprocess.run([*start, *arguments], capture_output=True, input=plant, check=False)
    assert (result.returncode, result.stdout, result.stderr.decode()) == (1, b"", error)


def test_store_option_overrides_the_environment(run: Run, tmp_path: Path) -> None:
    """--store overrides PLANTSTORE_STORE, before the command or after it."""
    other = f"sqlite:///{tmp_path}/other.db"
    assert run("--store", other, "add", "1", "Monstera").exit_code == 0
    assert run("count", "--store", other).output == "1\n"
    assert run("count").output == "0\n"
