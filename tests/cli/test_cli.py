"""The plantstore command."""

import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from click.testing import Result

from plantstore import StaticTokens, __version__
from plantstore.cli import main
from plantstore.settings import SETTINGS
from plantstore.stores.urls import existing
from tests.support.commands import COMMAND, Run, invoke
from tests.support.installing import install
from tests.support.sql import COLUMNS


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


def test_list_after_an_id(run: Run) -> None:
    """`plantstore list --after` prints only the plants with a greater id, which may be negative."""
    for id in ("-9", "-8", "7"):
        assert run("add", id, "Rose").exit_code == 0
    assert run("list", "--after", "-9").output == "-8\tRose\t\n7\tRose\t\n"
    assert run("list", "--after", "7").output == ""


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
    ("arguments", "message"),
    [
        (["show", "9223372036854775808"], "'ID': 9223372036854775808 is not between -2^63 and 2"),
        (
            ["remove", "-9223372036854775809"],
            "-9223372036854775809 is not between -2^63 and 2^63-1",
        ),
        (["list", "--after", "x"], "'--after': 'x' is not a valid integer."),
        (["show", "one"], "'ID': 'one' is not a valid integer."),
        (["serve", "--workers", "0"], "'--workers': 0 is not at least 1."),
        (["add", "4", "x\udcff"], "'NAME': Must be UTF-8."),
        (["add", "4", "x", "--tag", "\udcff"], "'--tag': Must be UTF-8."),
        (["add", "4", "x\0"], "name: "),
        (["export", ""], "FILE: the name is empty."),
        (["water"], "No such command 'water'."),
        (["add", "1"], "Missing argument 'NAME'."),
        (["import", "missing.jsonl"], "'missing.jsonl' does not exist."),
        (["import", "-", "--format", "xml"], "'xml' is not one of 'jsonl', 'csv'."),
        (["list", "--store", "foo://me:hunter2@host/db"], "not the URL of a store"),
    ],
)
def test_message_of_a_wrong_argument(run: Run, arguments: list[str], message: str) -> None:
    """The message of a wrong argument says in words what is wrong, and has no password."""
    shown = failure(run(*arguments), 2)
    assert message in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("arguments", [["list"], ["list", "--store", ""], ["backup", "copy.db"]])
def test_empty_url_is_refused(arguments: list[str]) -> None:
    """An empty PLANTSTORE_STORE or --store is not the default, and the message names both."""
    message = failure(invoke(*arguments, env={"PLANTSTORE_STORE": ""}), 2)
    assert "for --store or PLANTSTORE_STORE: not the URL of a store" in message


COMMANDS = ["add 1 x", "show 1", "list", "count", "remove 1", "export", "import -"]


@pytest.mark.parametrize("command", [*COMMANDS, "backup copy.db"])
def test_memory_store_is_refused(command: str) -> None:
    """With memory://, which is the default, every store command fails and says what to set."""
    for option in [], ["--store", "memory://"]:
        message = failure(invoke(*command.split(), *option), 2)
        assert "only the service itself can access the plants" in message
        assert "sqlite:///plants.db" in message


UNREACHABLE = {
    "postgresql": "connection ",
    "mysql": "Can't connect to MySQL server on '127.0.0.1' (",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("scheme", UNREACHABLE)
def test_unreachable_store_is_exit_code_1(run: Run, command: str, scheme: str) -> None:
    """An unreachable store is exit code 1, with one line that contains no password."""
    url = f"{scheme}://me:hunter2@127.0.0.1:1/plants"
    message = failure(run(*command.split(), "--store", url), 1)
    assert message.startswith(f"Error: the store is unavailable: {UNREACHABLE[scheme]}")
    assert message.count("\n") == 1
    assert "hunter2" not in message


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_table_is_exit_code_1(tmp_path: Path, command: str) -> None:
    """A table that cannot store plants is exit code 1, with one line on standard error."""
    with closing(sqlite3.connect(tmp_path / "plants.db")) as database:
        columns = COLUMNS.replace("name", "title").replace("tag", "kind")
        database.execute(f"CREATE TABLE plants ({columns})")
    error = (
        "Error: the store is not set up for plants: table plants: it has no column name and no"
        " column tag\n"
    )
    arguments = [*command.split(), "--store", f"sqlite:///{tmp_path}/plants.db"]
    plant = b'{"id": 1, "name": "x"}'
    assert failure(invoke(*arguments, input=plant), 1) == error
    # Without pytest, which shows the log by itself.
    start = [sys.executable, "-c", "from plantstore.cli import main; main()"]
    result = subprocess.run([*start, *arguments], capture_output=True, input=plant, check=False)
    assert (result.returncode, result.stdout, result.stderr.decode()) == (1, b"", error)


def test_store_option_overrides_the_environment(run: Run, tmp_path: Path) -> None:
    """--store overrides PLANTSTORE_STORE."""
    other = f"sqlite:///{tmp_path}/other.db"
    assert run("add", "1", "Monstera", "--store", other).exit_code == 0
    assert run("count", "--store", other).output == "1\n"
    assert run("remove", "1", "--store", other).exit_code == 0
    assert run("add", "1", "Rose").exit_code == 0
    assert run("count", "--store", other).output == "0\n"


def in_a_shell(command: str) -> tuple[int, str, str]:
    """Run the plantstore command with redirections; return its exit code and both outputs."""
    shell = f"{shlex.join(COMMAND)} {command}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("token >/dev/full", "standard output: No space left on device"),
        ("--help >/dev/full", "standard output: No space left on device"),
        *(
            (f"add 2 x --store URL {closed}", "a standard stream is closed. Use /dev/null instead.")
            for closed in (">&-", "<&-", "<&- >&-")
        ),
    ],
)
def test_closed_or_full_stream_is_exit_code_1(
    run: Run, url: str, command: str, message: str
) -> None:
    """If a standard stream is closed or full, a command fails with one line, and adds nothing."""
    assert run("add", "1", "Monstera").exit_code == 0
    assert in_a_shell(command.replace("URL", shlex.quote(url))) == (1, "", f"Error: {message}\n")
    assert run("count").output == "1\n"


def test_message_cannot_be_written(run: Run, url: str) -> None:
    """If standard error is full, a failed command only has its exit code."""
    assert in_a_shell(f"show 2 --store {shlex.quote(url)} 2>/dev/full") == (1, "", "")


def test_encoding_that_lacks_a_character(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plants are written in UTF-8, whatever the encoding of the terminal is."""
    assert run("add", "1", "🌵", "--tag", "é").exit_code == 0
    for command, output in (
        (["show", "1"], '{"id":1,"name":"🌵","tag":"é"}\n'),
        (["list"], "1\t🌵\té\n"),
    ):
        stdout = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(stdout, encoding="latin-1"))
        main.main([*command, "--store", url], standalone_mode=False)
        assert stdout.getvalue().decode() == output


READING = ["list", "show 1", "count", "export", "export plants.jsonl", "backup copy.db", "remove 1"]


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("options", ["", "?timeout=1", "?mode=rw", "?mode=rwc", "?mode=%72wc"])
def test_reading_never_creates_a_database(
    run: Run, tmp_path: Path, command: str, options: str
) -> None:
    """Without its SQLite file, a command other than add and import fails, and names the file."""
    message = failure(run(*command.split(), "--store", f"sqlite:///typo.db{options}"), 1)
    assert message.startswith("Error: the store is unavailable: ")
    assert "typo.db" in message
    assert message.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("command", READING)
def test_reading_never_creates_a_table(run: Run, url: str, tmp_path: Path, command: str) -> None:
    """A command that reads an empty SQLite file finds no plants, and does not change the file."""
    file = tmp_path / "plants.db"
    file.touch()
    missing = command in {"show 1", "remove 1"}
    assert run(*command.split()).exit_code == (1 if missing else 0)
    assert file.read_bytes() == b""


@pytest.mark.parametrize("command", ["add 1 Rose", "import -"])
def test_add_and_import_create_a_database(run: Run, command: str) -> None:
    """A new SQLite file is created by add and by import."""
    assert run(*command.split(), input=b'{"id":1,"name":"Rose"}\n').exit_code == 0
    assert run("count").output == "1\n"


def test_mode_of_an_existing_database() -> None:
    """Only the URL of an SQLite file gets mode=rw, which replaces mode=rwc, unless it is wrong."""
    for url in (
        "postgresql://me@host/db?mode=rwc",
        "sqlite:///a.db?timeout=1&mode=rw",
        "sqlite:///a.db?mode",
        "sqlite:///a.db?mode=ro",
    ):
        assert existing(url) == url
    for options, changed in (
        ("", "mode=rw"),
        ("?", "mode=rw"),
        ("?timeout=1", "timeout=1&mode=rw"),
        ("?mode=rwc&timeout=1", "mode=rw&timeout=1"),
        ("?timeout=1&mo%64e=%72wc", "timeout=1&mode=rw"),
    ):
        assert existing(f"sqlite:///mode=.db{options}") == f"sqlite:///mode=.db?{changed}"


def test_control_characters_in_a_message_are_escaped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of a store is one line, whose control characters are escaped."""
    source = r"""
from plantstore import StoreUnavailable
def open(url):
    raise StoreUnavailable("first\x1b[2J\n  second")
"""
    install(monkeypatch, tmp_path, "plantstore-shelf", "shelf", source)
    message = failure(run("count", "--store", "shelf://"), 1)
    assert message == r"Error: the store is unavailable: first\u001b[2J second" + "\n"


HELP = [[], *([name] for name in main.commands)]


def examples(text: str) -> list[list[str]]:
    """Return the arguments of the examples at the end of a help text."""
    _, *lines = text.partition("\n  Example")[2].splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_has_an_example(run: Run, tmp_path: Path, command: list[str]) -> None:
    """The help of every command ends with examples of correct usage, each on a line of its own."""
    for name in ("plants.jsonl", "plants.csv"):
        (tmp_path / name).touch()
    text = run(*command, "--help").output
    assert max(map(len, text.splitlines())) <= 80
    # So click ends a sentence that is too long for its line.
    assert not any(line.endswith("...") for line in text.splitlines()[1:])
    found = examples(text)
    assert found
    for program, name, *arguments in found:
        assert program == "plantstore"
        assert [name] == (command or [name])
        main.commands[name].make_context(
            name, [argument for argument in arguments if argument != "--help"]
        )


def test_examples_of_the_help_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the commands for plants succeed, one after the other, in an empty folder.

    They need no environment variable.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("token", "openapi", "add", "show", "list", "count", "export", "backup", "remove"):
        for _, *arguments in examples(invoke(name, "--help").output):
            assert invoke(*arguments).exit_code == 0, arguments


def test_help_names_the_settings(run: Run) -> None:
    """`plantstore --help` names every setting, the exit codes, and the temporary files."""
    text = run("--help").output
    assert "Exit codes: 0 for success, 1 for a failure, 2 for wrong usage." in text
    assert ".plantstore-*" in text
    for setting in SETTINGS:
        assert f"\n    {setting.name} " in text
