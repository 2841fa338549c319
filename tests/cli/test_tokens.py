"""The commands `plantstore token` and `plantstore tokens`."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from plantstore.blueprint import RIGHTS
from plantstore.tokens.file import read_file
from tests.support.commands import invoke
from tests.support.serving import LIMIT, ROOT

COMMAND = [sys.executable, "-m", "plantstore"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a file of tokens that does not exist yet."""
    return str(tmp_path / "tokens.txt")


def run(*arguments: str) -> str:
    """Run a command that must succeed; return its standard output."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def failure(*arguments: str) -> str:
    """Run a command that must fail with one line; return the line."""
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_line_of_a_new_token() -> None:
    """The second line of `plantstore token` has the digest, the name and the expiry."""
    token, line = run("token", "--name", " kiosk  1", "--expires", "9999-01-31").splitlines()
    digest = sha256(token.encode()).hexdigest()
    assert line == f"sha256:{digest} kiosk 1 expires=9999-01-31"


def test_append_writes_the_digest_and_shows_the_token_once(file: str) -> None:
    """With --append, the file gets the digest, and standard output only the token."""
    options = ("--name", "kiosk", "--append", file)
    token = run("token", *options, "--expires", "9999-01-31T12:00+02:00").removesuffix("\n")
    digest = sha256(token.encode()).hexdigest()
    assert Path(file).read_text() == f"sha256:{digest} kiosk expires=9999-01-31T10:00:00Z\n"


def test_append_with_a_name_of_the_file_is_refused(file: str) -> None:
    """Two tokens of a file have different names: to revoke one does not revoke the other."""
    run("token", "--name", "kiosk 1", "--append", file)
    before = Path(file).read_bytes()
    line = failure("token", "--name", "kiosk  1", "--append", file)
    assert "already has a token with the name kiosk 1" in line
    assert "--name 'kiosk 1-2'" in line
    assert Path(file).read_bytes() == before
    run("token", "--name", "kiosk 1-2", "--append", file)
    assert [token.client for token in read_file(file)] == ["kiosk 1", "kiosk 1-2"]


def test_append_keeps_the_other_lines(file: str) -> None:
    """With --append, the other lines of the file and its permissions stay as they are."""
    before = b"\xef\xbb\xbf# tokens\r\n one Flora # \xc3\xa4\r\n\r\ntwo"
    Path(file).write_bytes(before)
    Path(file).chmod(0o640)
    run("token", "--append", file)
    after = Path(file).read_bytes()
    assert after.startswith(before + b"\nsha256:")
    assert (Path(file).stat().st_mode & 0o777, len(read_file(file))) == (0o640, 3)


def test_concurrent_appends_lose_no_token(file: str) -> None:
    """Of tokens that are appended at the same moment, none is lost, also by way of a link."""
    folder = Path(file).parent / "links"
    folder.mkdir()
    link = folder / "link"
    link.symlink_to(file)

    def append(number: int) -> str:
        path = link if number % 2 else file
        arguments = ["token", "--name", f"client {number}", "--append", path]
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
        )
        return done.stdout.strip()

    with ThreadPoolExecutor(8) as threads:
        tokens = [*threads.map(append, range(16))]
    digests = {token.digest: token.client for token in read_file(file)}
    assert [digests[sha256(token.encode()).digest()] for token in tokens] == [
        f"client {number}" for number in range(16)
    ]


def test_append_to_a_file_that_is_not_valid(file: str) -> None:
    """A file that the service would not accept is refused by --append, and unchanged."""
    Path(file).write_text("one\nhunter2#x\n")
    assert failure("token", "--append", file).startswith(f"Error: {file}: line 2 is neither ")
    assert Path(file).read_text() == "one\nhunter2#x\n"
    Path(file).write_bytes(b"\xff")
    assert failure("token", "--append", file) == f"Error: {file}: not UTF-8 text."
    assert failure("token", "--append", os.devnull) == "Error: /dev/null: not a regular file."
    assert failure("token", "--append", f"{file}/a/b").endswith(os.strerror(20))


def test_token_that_cannot_be_shown(file: str) -> None:
    """If the token cannot be written to standard output, the command fails, and says what it did.

    The file then has the digest of a token that nobody knows.
    """
    with open("/dev/full", "wb") as full:
        arguments = [*COMMAND, "token", "--append", file]
        done = subprocess.run(
            arguments, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT
        )
    assert done.returncode == 1
    assert done.stderr == (
        f"The digest of the token was appended to {file}.\n"
        f"Error: standard output: {os.strerror(28)}\n"
    )
    assert len(read_file(file)) == 1


def test_file_that_is_mounted_alone(file: str) -> None:
    """If a file of tokens cannot be replaced, because only it is mounted, no token is shown."""
    Path(file).write_text("one\n")
    mount = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', file]
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("only root can mount a file")
    arguments = [*mount, *COMMAND, "token", "--append", file]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (1, "")
    reason = "it is mounted alone, so it cannot be replaced: mount its folder"
    assert done.stderr == f"Error: {file}: {reason}\n"
    assert [path.name for path in Path(file).parent.iterdir()] == ["tokens.txt"]
    assert Path(file).read_text() == "one\n"


# The command on a disk with room for 4 KiB.
SMALL_DISK = """
from resource import RLIM_INFINITY, RLIMIT_FSIZE, setrlimit
from plantstore.cli import main
setrlimit(RLIMIT_FSIZE, (4096, RLIM_INFINITY))
try:
    main()
finally:  # The measurement of coverage writes its file afterwards.
    setrlimit(RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
"""


def test_token_that_cannot_be_stored_is_not_shown(file: str) -> None:
    """If the file cannot be written, for example because the disk is full, no token is shown."""
    Path(file).write_text("one\n" + "#" * 4080)
    arguments = [sys.executable, "-c", SMALL_DISK, "token", "--append", file]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {file}: {os.strerror(27)}\n"
    assert len(Path(file).read_bytes()) == 4084


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--name", ""),
        ("--name", " "),
        ("--name", "a=b"),
        ("--name", "a #b"),
        ("--name", "#b"),
        ("--name", "\udcff"),
        ("--expires", "tomorrow"),
        ("--expires", "2020-01-01"),
        ("--expires", "9999-12-31T23:59-01:00"),
    ],
)
def test_wrong_option_is_refused(file: str, option: str, value: str) -> None:
    """A name that a line cannot have, and an expiry that is invalid or past, are refused."""
    result = invoke("token", option, value, "--append", file)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': " in result.stderr
    assert not Path(file).exists()


def test_list_shows_names_and_expiry(file: str) -> None:
    """`plantstore tokens list` shows names, expiry and operations, and no token."""
    Path(file).write_text(
        "hunter2 a\x1bb\nt expires=2020-01-31\n"
        "u v w expires=9999-01-31T12:00 operations=read,list\n"
    )
    assert run("tokens", "list", file) == (
        "a\\u001bb\tnever\tall\nline-2\t2020-01-31\tall\texpired\n"
        "v w\t9999-01-31T12:00:00Z\tread,list\n"
    )


def test_token_with_operations(file: str) -> None:
    """`plantstore token --operations` makes a token with the right to these operations only."""
    run("token", "--name", "shop", "--operations", "read,list", "--append", file)
    assert run("tokens", "list", file) == "shop\tnever\tread,list\n"
    for wrong in ("", "write", "read list", "read,"):
        result = invoke("token", "--operations", wrong)
        assert result.exit_code == 2
        assert f"some of {', '.join(RIGHTS)}, separated by commas" in result.stderr


def test_revoke_removes_every_token_of_a_client(file: str) -> None:
    """`plantstore tokens revoke` removes the lines of a client, and no other line."""
    kept = b"# all\r\ntwo Flora # kiosk\n"
    Path(file).write_bytes(b"one kiosk\r\n" + kept + b"two2  kiosk expires=2020-01-01\n")
    assert (
        run("tokens", "revoke", file, "kiosk") == f"The tokens of kiosk were removed from {file}.\n"
    )
    assert Path(file).read_bytes() == kept


def test_revoke_keeps_the_names_of_tokens_without_a_name(file: str) -> None:
    """A token without a name has the number of its line as its name, also after a revocation."""
    Path(file).write_text("one\ntwo kiosk\nthree\nfour\n")
    run("tokens", "revoke", file, " kiosk ")
    run("tokens", "revoke", file, "line-3")
    assert run("tokens", "list", file) == "line-1\tnever\tall\nline-4\tnever\tall\n"


def test_revoke_of_an_unknown_name_or_the_last_token(file: str) -> None:
    """An unknown name, and the only name of a file, are refused by `plantstore tokens revoke`."""
    Path(file).write_text("one kiosk\n")
    assert failure("tokens", "revoke", file, "Kiosk") == "Error: no token has the name Kiosk."
    assert "Append another token first" in failure("tokens", "revoke", file, "kiosk")
    assert Path(file).read_text() == "one kiosk\n"


@pytest.mark.parametrize("command", [["list"], ["revoke", "kiosk"]])
def test_missing_or_invalid_file_of_tokens(file: str, command: list[str]) -> None:
    """A missing file and an invalid one are refused with one clear message, and not created."""
    name, *rest = command
    result = invoke("tokens", name, file, *rest)
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
    assert not Path(file).exists()
    Path(file).write_text("one\n\ufeff\n")
    assert failure("tokens", name, file, *rest).startswith(f"Error: {file}: line 2 is neither ")


def test_revoke_of_a_name_with_spaces(file: str) -> None:
    """A name with spaces is one argument, and only the token with this whole name is revoked."""
    for name in ("Flora", "Flora of the greenhouse", "Flora of"):
        run("token", "--name", name, "--append", file)
    before = Path(file).read_bytes().splitlines(keepends=True)
    assert run("tokens", "revoke", file, " Flora\t of ") == (
        f"The tokens of Flora of were removed from {file}.\n"
    )
    assert Path(file).read_bytes() == before[0] + before[1]
    assert failure("tokens", "revoke", file, "of the") == "Error: no token has the name of the."
