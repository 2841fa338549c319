"""The commands import and export."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plantstore import Plant, SQLStore, StoreUnavailable, open_store
from tests.support.commands import COMMAND, Run, invoke
from tests.support.databases import Place

JSONL = b'{"id":-1,"name":"Rose"}\n{"id":2,"name":"Lily","tag":"white"}\n'
CSV = b"id,name,tag\r\n-1,Rose,\r\n2,Lily,white\r\n"
INT64 = "id: Must be an integer from -2^63 to 2^63-1, in digits"
# The plants of JSONL and of CSV.
BOTH = [Plant(-1, "Rose"), Plant(2, "Lily", "white")]
NINES = b"9" * 5000
NAMES = "line 1: Must have the names id, name, tag, not "
NOT_CSV = "Not CSV in UTF-8: look at the encoding, the quotation marks, and the line ends."


def plants(url: str) -> list[Plant]:
    """Return the plants of a store."""
    with open_store(url) as store:
        return list(store)


# Texts that have a meaning in JSON or CSV.
TEXTS = [" Rose", "a, b", "", '"', "x\r\ny\n", "\r", "'\\", "\t", "\x1c\x85\u2028", "\ufeff"]
TEXTS += ["\x1b[2J", "é🌵"]


@pytest.mark.parametrize("name", ["plants.jsonl", "plants.csv"])
def test_export_and_import_on_every_engine(place: Place, tmp_path: Path, name: str) -> None:
    """What was exported can be imported again, unchanged. But in CSV, an empty tag is no tag."""
    texts = enumerate(TEXTS * 30, -150)
    many = [Plant(id, text, TEXTS[id % 7] if id % 50 else "a" * 140_000) for id, text in texts]
    with open_store(place.url) as store:
        store.add_some(many)
    assert invoke("export", str(tmp_path / name), "--store", place.url).exit_code == 0
    place.clear()
    result = invoke("import", str(tmp_path / name), "--store", place.url)
    assert result.output == f"{len(many)} added, 0 already there, 0 different\n"
    if name == "plants.csv":
        many = [plant._replace(tag=plant.tag or None) for plant in many]
    assert plants(place.url) == many


INPUTS = [("-", JSONL), ("- --format csv", CSV), ("plants.jsonl", JSONL), ("PLANTS.CSV", CSV)]
INPUTS += [("plants.csv --format jsonl", JSONL)]


@pytest.mark.parametrize(("arguments", "content"), INPUTS)
def test_format_option_and_file_name(run: Run, url: str, arguments: str, content: bytes) -> None:
    """--format selects the format; without it, the file's name does. - is a standard stream."""
    file = Path(arguments.split()[0])
    if file.name != "-":
        file.write_bytes(content)
    result = run("import", *arguments.split(), input=content)
    assert (result.exit_code, result.output) == (0, "2 added, 0 already there, 0 different\n")
    assert plants(url) == BOTH
    result = run("export", *arguments.split())
    assert result.exit_code == 0
    assert (file.read_bytes() if file.name != "-" else result.stdout_bytes) == content


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("jsonl", b"\xef\xbb\xbf" + JSONL),
        ("jsonl", JSONL.replace(b"\n", b"\r\n\r\n \r\n")),
        ("jsonl", JSONL.replace(b'"id":2', b'"id":2.0,"age":7')),
        ("csv", b"\n" + CSV.replace(b"\r\n", b"\n\n,,\n")),
        ("csv", CSV.replace(b"name,tag", b" Name, TAG").rstrip()),
        ("csv", CSV.replace(b",", b",  ").replace(b"Lily", b'"Lily"')),
        ("csv", b'tag,name,id\n,"Rose",-01\n"white",Lily,"2"'),
        ("csv", CSV.replace(b"2,", b"2.0,").replace(b"-1,", b"-01 ,")),
    ],
)
def test_import_of_files_from_other_programs(
    run: Run, url: str, format: str, content: bytes
) -> None:
    """A byte order mark, empty lines, unknown members of JSON, and spaces in CSV are accepted."""
    assert run("import", "-", "--format", format, input=content).exit_code == 0
    assert plants(url) == BOTH


# How spreadsheet programs, and programs for tables, write a number that they have read.
ROUNDED = ["1.23457E+11", "1.23E+05", "1e3", "1e+16", "1,00E+05"]
FORMATTED = ["1,234", "1.234", "1.000", "1.00", "1.", "1 234", "1\u202f234", "1'234", "$1", "(1)"]
OTHERS = ["'1", "=1", "+1", "1-", "\u22121", "\uff11", "2024-01-02", "1/2/2024", "TRUE", "nan", ""]
OTHERS += ["#REF!", "0x1", "[1]", "-", "0.5", "1_0"]


@pytest.mark.parametrize("cell", [*ROUNDED, *FORMATTED, *OTHERS])
def test_id_that_a_spreadsheet_has_changed_is_refused(run: Run, url: str, cell: str) -> None:
    """In CSV, an id is decimal digits, if need be with ``.0``. The message shows another value."""
    content = f'id,name\n1,Rose\n"{cell}",Lily\n'.encode()
    Path("plants.csv").write_bytes(content)
    result = run("import", "plants.csv")
    assert result.exit_code == 1
    shown = cell.replace("\u202f", r" ")
    assert result.stderr.startswith(f"Error: line 3: {INT64}, not '{shown}'. ")
    assert plants(url) == []


@pytest.mark.parametrize(
    ("format", "content", "fault"),
    [
        ("jsonl", b"\n{}\n", "line 3: id: Missing data for required field. name:"),
        ("jsonl", b"[1\n", "line 2: Not JSON: Expecting ',' delimiter."),
        ("jsonl", b"\xe9\n", "line 2: Not JSON: It is not UTF-8."),
        ("jsonl", b'{"y":NaN}\n', "line 2: Not JSON: NaN is not a JSON value."),
        ("jsonl", b'{"id":3,"name":"x","tag":null}\n', "line 2: tag: "),
        ("jsonl", b'{"id":-%s,"name":"x"}\n' % NINES, "line 2: "),
        ("csv", b"3;a;b\n", "line 3: cells: Must be 3, not '3;a;b'."),
        ("csv", b'4,"a\nb",\n\nfive,c,\n', f"line 6: {INT64}, not 'five'."),
        ("csv", b"-" + NINES + b",a,\n", f"line 3: {INT64}, not '-{'9' * 58}…'."),
        ("csv", b"9007199254740993.0,a,\n", "line 3: id: Must be between -2^63 and 2^63-1. From"),
        ("csv", b"9223372036854775808,a,\n", "line 3: id: Must be between -2^63 and 2^63-1."),
        ("csv", b'4,"a\nb",\n4,"a"b,\n', f"line 5: {NOT_CSV}"),
        ("csv", b'4,"a\nb",\n\xff,"a",\n', f"line 5: {NOT_CSV}"),
        ("csv", b"4,a,\r5,b,\r", f"line 3: {NOT_CSV}"),
        ("csv", b'4,"a\n\n', f"line 3: {NOT_CSV}"),
        *(("CSV", f"{row}\n".encode(), f"{NAMES}'{row}'") for row in ("id,id,name", "id,tag")),
        ("CSV", CSV.decode().encode("utf-16"), f"line 1: {NOT_CSV}"),
        ("CSV", CSV.replace(b",", b";"), f"{NAMES}'id;name;tag'"),
        ("CSV", CSV.replace(b"name", "na\u00admé".encode()), f"{NAMES}'id,na\\u00admé,tag'"),
        ("CSV", b"sep=,\n" + CSV, f"{NAMES}'sep=,'"),
        ("CSV", b"id" + b"x" * 100 + CSV, f"{NAMES}'id{'x' * 57}…'"),
    ],
)
def test_wrong_line_ends_the_import(
    run: Run, url: str, format: str, content: bytes, fault: str
) -> None:
    """An import ends at a wrong line, with its number, the fault, and how many were added.

    CSV that does not begin with the names of the fields has a wrong first line.
    """
    first = {"jsonl": b'{"id":-1,"name":"Rose"}\n', "csv": b"id,name,tag\n-1,Rose,\n"}
    Path("plants").write_bytes(first.get(format, b"") + content)
    result = run("import", "plants", "--format", format.lower())
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {fault}")
    assert result.stderr.endswith(" Correct it, and repeat the command.\n")
    assert result.stderr.count("\n") == 1
    assert result.stdout == f"{len(plants(url))} added, 0 already there, 0 different\n"


def lines_of(plants: list[Plant]) -> bytes:
    """Return plants as JSON Lines."""
    return b"".join(json.dumps(plant.members()).encode() + b"\n" for plant in plants)


def test_repeated_import(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the correction of a wrong line, the same command adds the rest. It can be repeated.

    It reads the plants that are there by one call for many of them, in any order of the file.
    """
    monkeypatch.setattr(SQLStore, "get", None)
    many = [Plant(id, f"plant {id}", "x") for id in range(2500)]
    result = run("import", "-", input=lines_of(many[:1500]) + b"[]\n")
    assert (result.exit_code, result.stdout) == (1, "1000 added, 0 already there, 0 different\n")
    assert result.stderr.startswith("Error: line 1501: ")
    assert plants(url) == many[:1000]
    for added in (1500, 0):
        result = run("import", "-", input=lines_of(many[::-1]))
        assert result.output == f"{added} added, {2500 - added} already there, 0 different\n"
        assert result.exit_code == 0
    assert plants(url) == many


def test_import_of_plants_with_other_values(run: Run, url: str) -> None:
    """A plant that exists with other values is left as it is, and its line is reported.

    At most ten are. The exit code is 1, and the last line has the numbers.
    """
    old = [Plant(id * 1000, "old") for id in range(12)]
    with open_store(url) as store:
        store.add_some(old)
    changed = [plant._replace(name="other") for plant in old[1:]]
    result = run("import", "-", input=lines_of([old[0], Plant(-1, "new"), *changed]))
    lines = [f"line {n}: plant {n - 2}000 exists with other values\n" for n in range(3, 13)]
    assert (result.exit_code, result.stderr) == (1, "".join(lines))
    assert result.stdout == "1 added, 1 already there, 11 different\n"
    assert plants(url) == [Plant(-1, "new"), *old]


def test_plant_that_occurs_twice_in_a_file(run: Run, url: str) -> None:
    """Of several plants with one id in a file, the first is added. Equal ones are already there."""
    rose, lily = Plant(1, "Rose"), Plant(1, "Lily")
    for distance in (0, 1500):
        between = [Plant(id, "") for id in range(2, 2 + distance)]
        Path("plants").write_bytes(lines_of([rose, *between, rose, lily]))
        result = run("import", "plants")
        assert result.stderr == f"line {distance + 3}: plant 1 exists with other values\n"
        added, there = (1, 1) if distance == 0 else (distance, 2)
        assert result.stdout == f"{added} added, {there} already there, 1 different\n"
        assert plants(url) == [rose, *between]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (StoreUnavailable("down"), "Error: the store cannot be used: down\n"),
        (OSError(28, "full"), "Error: {}: full\n"),
        (KeyboardInterrupt(), "\nAborted!\n"),
    ],
)
def test_failed_export_keeps_the_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, failure: BaseException, message: str
) -> None:
    """An export that fails or is interrupted leaves the old file, and no other file."""

    def fail_in_the_middle(store: SQLStore) -> Iterator[Plant]:
        yield from (Plant(id, "x" * 100) for id in range(10_000))
        raise failure

    run("import", "-", input=JSONL)
    monkeypatch.setattr(SQLStore, "__iter__", fail_in_the_middle)
    Path("plants.jsonl").write_text("precious")
    before = sorted(os.listdir())
    for file in ("plants.jsonl", "new.jsonl"):
        result = run("export", file)
        assert (result.exit_code, result.stderr) == (1, message.format(file))
    assert Path("plants.jsonl").read_text() == "precious"
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *((f"export {name}", f"{name}: .+") for name in ("missing/plants", "x" * 256)),
        ("export missing/a\udcff\x1b", r"missing/a\\udcff\\u001b: .+"),
        ("import /proc/self/mem", "/proc/self/mem: Input/output error"),
    ],
)
def test_file_that_cannot_be_used(run: Run, command: str, message: str) -> None:
    """If a file cannot be written or read, the command fails with one line that names it."""
    run("import", "-", input=JSONL)
    before = sorted(os.listdir())
    result = run(*command.split())
    assert result.exit_code == 1
    assert re.fullmatch(f"Error: {message}\n", result.stderr)
    assert sorted(os.listdir()) == before


def test_export_never_replaces_a_database(run: Run, url: str) -> None:
    """FILE must not be an SQLite database, also by a link, nor the log or journal of one."""
    run("import", "-", input=JSONL)
    os.symlink("plants.db", "link")
    os.link("plants.db", "hard-link")
    os.symlink("plants.db-wal", "log")
    endings = ("", "-wal", "-shm", "-journal")
    for name in ("link", "hard-link", "log", *(f"plants.db{ending}" for ending in endings)):
        result = run("export", name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.endswith(
            f"Error: {name} belongs to a database. Choose another file.\n"
        )
    assert plants(url) == BOTH


@pytest.mark.parametrize("old", [None, 0o600, 0o666])
def test_permissions_of_an_export(run: Run, old: int | None) -> None:
    """A new file has the permissions that the umask allows. A replaced one keeps its own.

    A symbolic link stays a link.
    """
    run("import", "-", input=JSONL)
    Path("link").symlink_to("file")
    if old is not None:
        Path("file").touch(0)
        Path("file").chmod(old)
    before = os.umask(0o027)
    assert run("export", "link").exit_code == 0
    os.umask(before)
    assert Path("link").is_symlink()
    assert Path("file").read_bytes() == JSONL
    assert stat.S_IMODE(Path("file").stat().st_mode) == (0o640 if old is None else old)


def in_a_shell(script: str, url: str) -> list[str]:
    """Return the command of a shell whose function `plantstore` is the command with this store."""
    function = f'plantstore() {{ {shlex.join(COMMAND)} "$@"; }}'
    return ["bash", "-c", f"{function}\nexport PLANTSTORE_STORE={shlex.quote(url)}\n{script}"]


@pytest.fixture
def many(run: Run) -> bytes:
    """Import some thousand plants; return their lines, which a pipe cannot hold."""
    lines = b"".join(b'{"id":%d,"name":"%s"}\n' % (id, b"x" * 200) for id in range(2999))
    run("import", "-", input=lines)
    return lines


def test_pipes_by_name(url: str, many: bytes) -> None:
    """FILE may be a pipe, such as those that a shell makes: it is not replaced."""
    script = "plantstore export >(cat >&2); wait $!; plantstore import <(plantstore export)"
    done = subprocess.run(in_a_shell(script, url), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"0 added, 2999 already there, 0 different\n", many)


@pytest.mark.parametrize(
    ("script", "code", "output", "message"),
    [
        ("plantstore export | head -n 1", 0, 1, b""),
        ("plantstore export >/dev/full", 1, 0, b"standard output: No space left on device"),
        ("plantstore --help >/dev/full", 1, 0, b"standard output: No space left on device"),
    ],
)
@pytest.mark.usefixtures("many")
def test_output_that_is_not_read(
    url: str, script: str, code: int, output: int, message: bytes
) -> None:
    """A reader may close the pipe early: there is no message. On a full disk, it is one line."""
    done = subprocess.run(in_a_shell(script, url), capture_output=True, check=False)
    assert (done.returncode, done.stdout.count(b"\n")) == (code, output)
    assert done.stderr == (b"Error: %s\n" % message if message else b"")


# It runs a command on a terminal, and prints what the terminal shows.
TERMINAL = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]


def test_progress_bar_only_on_a_terminal(run: Run, url: str, many: bytes) -> None:
    """A command or a pipe has one progress bar, on standard error, if it is a terminal."""
    Path("plants").write_bytes(many)
    there = b"0 added, 2999 already there, 0 different\n"
    for command, label, expected in (
        ("export", "Exporting", many),
        ("import plants", "Importing", there),
        ("export | plantstore import -", "Exporting", there),
    ):
        shell = in_a_shell(f"plantstore {command} > output", url)
        shown = subprocess.check_output([*TERMINAL, *shell], stdin=subprocess.DEVNULL).decode()
        assert {*re.findall("[A-Z][a-z]+ing", shown)} == {label}
        assert len({*re.findall(r"\d+%", shown)}) >= 4
        # The spaces overwrite the remaining time, which only a slow run shows.
        assert re.search(r"100% *\x1b\[\?25h\r\n$", shown)
        assert Path("output").read_bytes() == expected
    assert run("export").stderr == ""
