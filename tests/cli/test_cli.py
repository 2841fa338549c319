"""The plantstore command."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import Result

from plantstore.cli import main
from plantstore.settings import SETTINGS
from tests.support.commands import Run, invoke
from tests.support.databases import UNREACHABLE

COMMANDS = ["export", "import -", "backup copy.db"]


def failure(result: Result, code: int) -> str:
    """Check that a command failed with this code and no traceback; return its message."""
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--workers", "0"], "'--workers': 0 is not in the range x>=1."),
        (["serve", "--log-level", "debug"], " serve [OPTIONS] [-- GUNICORN OPTIONS]\n"),
        (["water"], "No such command 'water'."),
        (["import", "missing.jsonl"], "'missing.jsonl' does not exist."),
        (["export", "--store", "foo://me:hunter2@host/db"], "not the URL of a store"),
        *(([command, ".", "--store="], "is a directory") for command in ("import", "export")),
        *(([*command.split(), "--store", ""], "not the URL of a store") for command in COMMANDS),
        *((command.split(), "sqlite:///plants.db") for command in COMMANDS),
        *(([*command.split(), "--store=memory://"], "only the service") for command in COMMANDS),
    ],
)
def test_message_of_a_wrong_argument(arguments: list[str], message: str) -> None:
    """A wrong argument is exit code 2. The message says what is wrong, and has no password."""
    result = invoke(*arguments)
    shown = failure(result, 2)
    assert (message in shown, "hunter2" in shown, result.stdout) == (True, False, "")


def test_empty_setting_is_refused() -> None:
    """An empty PLANTSTORE_STORE is not the default, and the message names both ways to set it."""
    message = failure(invoke("export", env={"PLANTSTORE_STORE": ""}), 2)
    assert "for --store or PLANTSTORE_STORE: not the URL of a store" in message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (UNREACHABLE, "connection "),
        ("sqlite:///text.db", "file is not a database"),
    ],
)
def test_unusable_store_is_exit_code_1(run: Run, tmp_path: Path, url: str, message: str) -> None:
    """A store that cannot be used is exit code 1, with one line that contains no password."""
    (tmp_path / "text.db").write_text("This is not a database.")
    for command in COMMANDS[: 3 if "text" in url else 2]:
        result = run(*command.split(), "--store", url, input=b'{"id": 1, "name": "x"}')
        shown = failure(result, 1)
        assert shown.startswith("Error: the store cannot be used: ")
        assert (message in shown, shown.count("\n"), "hunter2" in shown) == (True, 1, False)


@pytest.mark.parametrize("command", ["export", "export plants.jsonl", "backup copy.db"])
def test_reading_never_creates_a_database(run: Run, tmp_path: Path, command: str) -> None:
    """Without its SQLite file, an export or a backup fails, and creates nothing."""
    for options in ("", "?mode=rw", "?mode=%72wc"):
        message = failure(run(*command.split(), "--store", f"sqlite:///typo.db{options}"), 1)
        assert re.fullmatch("Error: the store cannot be used: .*typo.db.*\n", message)
        assert [*tmp_path.iterdir()] == []
    file = tmp_path / "plants.db"
    file.touch()
    assert run(*command.split()).exit_code == 0
    assert file.read_bytes() == b""


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)], ids=" ".join)
def test_help(command: list[str]) -> None:
    """The help of a command ends with an example of it. That of the program has all settings."""
    text = invoke(*command, "--help").output
    assert max(map(len, text.splitlines())) <= 80
    # So click ends a sentence that is too long for its line.
    assert not any(line.endswith("...") for line in text.splitlines()[1:])
    about = [f"\n  {setting.name} " for setting in SETTINGS]
    about += ["Exit codes: 0 for success, 1 for a failure, 2 for wrong usage."]
    assert all(part in text for part in about) == (command == [])
    if command:
        example = text.partition("\n  Example:\n")[2].partition(" >>")[0]
        program, name, *arguments = shlex.split(example)
        assert (program, name) == ("plantstore", *command)
        arguments = [word.replace("plants.jsonl", __file__) for word in arguments]
        main.commands[name].make_context(name, arguments)
