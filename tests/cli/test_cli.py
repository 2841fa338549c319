"""The plantstore command."""

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from click.testing import Result

from plantstore.cli import main
from plantstore.settings import SETTINGS
from tests.support.commands import COMMAND, Run, invoke
from tests.support.databases import UNREACHABLE
from tests.support.sql import COLUMNS

COMMANDS = ["add 1 x", "show 1", "list", "count", "remove 1", "export", "import -"]
FULL = "Error: standard output: No space left on device\n"
CLOSED = "Error: a standard stream is closed. Use /dev/null instead.\n"
READING = ["list", "show 1", "count", "export", "export plants.jsonl", "backup copy.db", "remove 1"]


def test_commands_for_plants(run: Run) -> None:
    """A plant with any id can be added, shown, changed, listed after an id, counted and removed."""
    ids = ["-9223372036854775808", "-5", "0", "9223372036854775807"]
    for id in ids:
        assert run("add", id, "Rosé", "--tag", "").exit_code == 0
        assert run("show", id).output == f'{{"id":{id},"name":"Rosé","tag":""}}\n'
    assert run("change", "-5", "--name", "Rosa", "--tag", "früh").exit_code == 0
    assert run("show", "-5").output == '{"id":-5,"name":"Rosa","tag":"früh"}\n'
    assert run("change", "-5", "--name", "Rosé").exit_code == 0  # Its tag is removed.
    assert run("show", "-5").output == '{"id":-5,"name":"Rosé"}\n'
    lines = [f"{id}\tRosé\t\n" for id in ids]
    assert run("list").output == "".join(lines)
    assert run("list", "--after", "-5").output == "".join(lines[2:])
    for left in (3, 2, 1, 0):
        assert run("remove", ids[left]).exit_code == 0
        assert run("count").output == f"{left}\n"


def test_text_of_plants(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants are printed in UTF-8 on any terminal, with control characters as escapes."""
    assert run("add", "1", "\x1b[2J\x9b1m\t\u202e\n🌵", "--tag", 'é"b\\c').exit_code == 0
    name = r"\u001b[2J\u009b1m\t\u202e\n🌵"
    for command, output in (
        (["show", "1"], f'{{"id":1,"name":"{name}","tag":"é\\"b\\\\c"}}\n'),
        (["list"], f'1\t{name}\té"b\\c\n'),
    ):
        stdout = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(stdout, encoding="latin-1"))
        main.main([*command, "--store", url], standalone_mode=False)
        assert stdout.getvalue().decode() == output


def failure(result: Result, code: int) -> str:
    """Check that a command failed with this code and no traceback; return its message."""
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr


def test_duplicate_or_missing_plant_is_exit_code_1(run: Run) -> None:
    """Adding a duplicate, and using a missing plant, fails with exit code 1 and one line."""
    assert run("add", "1", "Monstera").exit_code == 0
    assert failure(run("add", "1", "Rose"), 1) == "Error: plant 1 already exists.\n"
    for command in (["show", "-2"], ["remove", "-2"], ["change", "-2", "--name", "Rosa"]):
        assert failure(run(*command), 1) == "Error: there is no plant -2.\n"
    assert run("show", "1").output == '{"id":1,"name":"Monstera"}\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "9223372036854775808"], "9223372036854775808 is not in the range -92"),
        (["list", "--after", "x"], "'--after': 'x' is not a valid integer"),
        (["serve", "--workers", "0"], "'--workers': 0 is not in the range x>=1."),
        (["serve", "--log-level", "debug"], " serve [OPTIONS] [-- GUNICORN OPTIONS]\n"),
        (["add", "4", "x\udcff"], "name: Must not contain a lone surrogate."),
        (["add", "4", "x", "--tag", "\udcff"], "tag: Must not contain a lone surrogate."),
        (["add", "4", "x\0"], "name: "),
        (["change", "4", "--name", "x\0"], "name: Must not contain U+0000."),
        (["change", "4"], "Missing option '--name'."),
        (["export", ""], "FILE: the name is empty."),
        (["water"], "No such command 'water'."),
        (["import", "missing.jsonl"], "'missing.jsonl' does not exist."),
        (["list", "--store", "foo://me:hunter2@host/db"], "not the URL of a store"),
    ],
)
def test_message_of_a_wrong_argument(run: Run, arguments: list[str], message: str) -> None:
    """The message of a wrong argument says what is wrong, and has no password."""
    shown = failure(run(*arguments), 2)
    assert message in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("arguments", [["list"], ["list", "--store", ""], ["backup", "copy.db"]])
def test_empty_url_is_refused(arguments: list[str]) -> None:
    """An empty PLANTSTORE_STORE or --store is not the default, and the message names both."""
    message = failure(invoke(*arguments, env={"PLANTSTORE_STORE": ""}), 2)
    assert "for --store or PLANTSTORE_STORE: not the URL of a store" in message


@pytest.mark.parametrize("command", [*COMMANDS, "backup copy.db"])
def test_memory_store_is_refused(command: str) -> None:
    """With memory://, which is the default, every store command fails and says what to set."""
    for option in [], ["--store", "memory://"]:
        message = failure(invoke(*command.split(), *option), 2)
        assert "only the service itself can access the plants" in message
        assert "sqlite:///plants.db" in message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (UNREACHABLE, " is unavailable: connection "),
        ("sqlite:///text.db", ": file is not a database: "),
        ("sqlite:///wrong.db", " is not set up for plants: table plants: it has no column name an"),
    ],
)
def test_unusable_store_is_exit_code_1(run: Run, tmp_path: Path, url: str, message: str) -> None:
    """A store that cannot be used is exit code 1, with one line that contains no password."""
    (tmp_path / "text.db").write_text("This is not a database.")
    with closing(sqlite3.connect(tmp_path / "wrong.db")) as database:
        columns = COLUMNS.replace("name", "title").replace("tag", "kind")
        database.execute(f"CREATE TABLE plants ({columns})")
    for command in [*COMMANDS, *["backup copy.db"] * ("text" in url)]:
        result = run(*command.split(), "--store", url, input=b'{"id": 1, "name": "x"}')
        shown = failure(result, 1)
        assert shown.startswith("Error: the store ")
        assert (message in shown, shown.count("\n"), "hunter2" in shown) == (True, 1, False)
    # Without pytest, which shows the log by itself.
    done = in_a_shell(f"list --store {url}")
    assert (done[:2], done[2].count("\n")) == ((1, ""), 1)


def in_a_shell(command: str) -> tuple[int, str, str]:
    """Run the plantstore command with redirections; return its exit code and both outputs."""
    shell = f"{shlex.join(COMMAND)} {command}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("token >/dev/full", FULL),
        ("--help >/dev/full", FULL),
        ("list --store URL >/dev/full", FULL),
        ("export --store URL >/dev/full", FULL),
        ("export /dev/full --store URL", FULL.replace("standard output", "/dev/full")),
        ("show 2 --store URL 2>/dev/full", ""),
        *((f"add 2 x --store URL {closed}", CLOSED) for closed in (">&-", "<&-", "<&- >&-")),
    ],
)
def test_closed_or_full_stream_is_exit_code_1(
    run: Run, url: str, command: str, message: str
) -> None:
    """If a standard stream is closed or full, a command fails with one line, and adds nothing."""
    assert run("add", "1", "Monstera").exit_code == 0
    assert in_a_shell(command.replace("URL", shlex.quote(url))) == (1, "", message)
    assert run("count").output == "1\n"


@pytest.mark.parametrize("command", READING)
def test_reading_never_creates_a_database(run: Run, tmp_path: Path, command: str) -> None:
    """Without its SQLite file, a command but add and import fails, and creates nothing."""
    for options in ("", "?mode=rw", "?mode=%72wc"):
        message = failure(run(*command.split(), "--store", f"sqlite:///typo.db{options}"), 1)
        assert re.fullmatch("Error: the store is unavailable: .*typo.db.*\n", message)
        assert [*tmp_path.iterdir()] == []
    file = tmp_path / "plants.db"
    file.touch()
    assert run(*command.split()).exit_code == (command in {"show 1", "remove 1"})
    assert file.read_bytes() == b""


def examples(text: str) -> list[list[str]]:
    """Return the arguments of the examples at the end of a help text."""
    _, *lines = text.partition("\n  Example")[2].splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)], ids=" ".join)
def test_help_has_an_example(run: Run, tmp_path: Path, command: list[str]) -> None:
    """The help of each command ends with examples of correct usage; the first has all settings."""
    for name in ("plants.jsonl", "plants.csv"):
        (tmp_path / name).touch()
    text = run(*command, "--help").output
    assert max(map(len, text.splitlines())) <= 80
    # So click ends a sentence that is too long for its line.
    assert not any(line.endswith("...") for line in text.splitlines()[1:])
    about = [" .plantstore-* ", *(f"\n    {setting.name} " for setting in SETTINGS)]
    about += ["Exit codes: 0 for success, 1 for a failure, 2 for wrong usage."]
    assert all(part in text for part in about) == (command == [])
    assert examples(text)
    for program, name, *arguments in examples(text):
        assert (program, [name]) == ("plantstore", command or [name])
        checked = [argument for argument in arguments if argument != "--help"]
        main.commands[name].make_context(name, checked)


def test_examples_of_the_help_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the commands for plants succeed in this order, without a setting."""
    monkeypatch.chdir(tmp_path)
    for name in ("token", "openapi", "add", "show", "list", "count", "export", "backup", "remove"):
        for _, *arguments in examples(invoke(name, "--help").output):
            assert invoke(*arguments).exit_code == 0, arguments
