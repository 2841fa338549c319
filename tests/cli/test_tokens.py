"""The commands `plantstore token` and `plantstore tokens`."""

import os
import resource
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from plantstore import StaticTokens
from plantstore.blueprint import RIGHTS
from plantstore.tokens.file import read_file
from tests.support.commands import COMMAND, invoke
from tests.support.serving import LIMIT, ROOT


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
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line


def in_a_shell(shell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell with these arguments."""
    command = ["sh", "-c", shell, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)


def digest(token: str) -> str:
    """Return the digest of a token as a line has it."""
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def test_new_token() -> None:
    """`plantstore token` prints a new token of 256 bits, and a line with its digest and options."""
    tokens = set()
    for _ in range(10):
        token, line = run("token", "--name", " kiosk  1", "--expires", "9999-01-31").splitlines()
        assert len(token) * 6 >= 256
        assert line == f"{digest(token)} kiosk 1 expires=9999-01-31"
        tokens.add(token)
    assert len(tokens) == 10
    token, line = run("token").splitlines()
    assert StaticTokens([line])(token) == "token-1"


def test_append_writes_the_digest_and_shows_the_token_once(file: str) -> None:
    """With --append, the file gets the digest and keeps the rest; the output has only the token."""
    options = ["--name", "kiosk", "--expires", "9999-01-31T12:00+02:00", "--operations=read,list"]
    line = "kiosk expires=9999-01-31T10:00:00Z operations=read,list\n"
    token = run("token", *options, "--append", file).removesuffix("\n")
    assert Path(file).read_text() == f"{digest(token)} {line}"
    before = b"\xef\xbb\xbf# tokens\r\n one Flora # \xc3\xa4\r\n\r\ntwo"
    Path(file).write_bytes(before)
    Path(file).chmod(0o640)
    token = run("token", *options, "--append", file).removesuffix("\n")
    assert Path(file).read_bytes() == before + f"\n{digest(token)} {line}".encode()
    assert Path(file).stat().st_mode & 0o777 == 0o640


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


# Processes that append a token at the same moment, every other by the second path.
APPENDS = """
import os, sys
from plantstore.cli import main
for number in range(16):
    if os.fork() == 0:
        main(["token", "--name", f"client {number}", "--append", sys.argv[1 + number % 2]])
for number in range(16):
    os.wait()
"""


def test_concurrent_appends_lose_no_token(file: str) -> None:
    """Of tokens that are appended at the same moment, none is lost, also by way of a link."""
    folder = Path(file).parent / "links"
    folder.mkdir()
    (folder / "link").symlink_to(file)
    done = in_a_shell('exec "$0" -c "$@"', sys.executable, APPENDS, file, f"{folder}/link")
    shown = [sha256(token.encode()).digest() for token in done.stdout.split()]
    assert len(shown) == 16
    assert {token.digest for token in read_file(file)} == {*shown}


def test_append_to_a_file_that_is_not_valid(file: str) -> None:
    """A file that the service would not accept is refused by --append, and unchanged."""
    for content, fault in (
        (b"one\nhunter2#x\n", "line 2 is neither "),
        (b"\xff", "not UTF-8 text."),
    ):
        Path(file).write_bytes(content)
        assert failure("token", "--append", file).startswith(f"Error: {file}: {fault}")
        assert Path(file).read_bytes() == content
    assert failure("token", "--append", os.devnull) == "Error: /dev/null: not a regular file."
    assert failure("token", "--append", f"{file}/a/b").endswith(os.strerror(20))


def test_token_that_cannot_be_shown(file: str) -> None:
    """If the token cannot be shown, the command fails, and says that the file has its digest."""
    done = in_a_shell('"$@" >/dev/full', "sh", *COMMAND, "token", "--append", file)
    assert done.returncode == 1
    assert done.stderr == (
        f"The digest of the token was appended to {file}.\n"
        f"Error: standard output: {os.strerror(28)}\n"
    )
    assert len(read_file(file)) == 1


def test_file_that_is_mounted_alone(file: str) -> None:
    """If a file of tokens cannot be replaced, because only it is mounted, no token is shown."""
    Path(file).write_text("one\n")
    mount = 'unshare --mount sh -c \'mount --bind "$0" "$0" && exec "$@"\' "$@"'
    if in_a_shell(mount, "sh", file, "true").returncode != 0:
        pytest.skip("only root can mount a file")
    done = in_a_shell(mount, "sh", file, *COMMAND, "token", "--append", file)
    assert (done.returncode, done.stdout) == (1, "")
    reason = "it is mounted alone, so it cannot be replaced: mount its folder"
    assert done.stderr == f"Error: {file}: {reason}\n"
    assert [path.name for path in Path(file).parent.iterdir()] == ["tokens.txt"]
    assert Path(file).read_text() == "one\n"


def test_token_that_cannot_be_stored_is_not_shown(file: str) -> None:
    """If the file cannot be written, for example because the disk is full, no token is shown."""
    Path(file).write_text("one\n" + "#" * 4080)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert failure("token", "--append", file) == f"Error: {file}: {os.strerror(27)}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(Path(file).read_bytes()) == 4084


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--name", [" ", "a=b", "a #b", "#b", "\udcff"]),
        ("--expires", ["tomorrow", "2020-01-01", "9999-12-31T23:59-01:00"]),
        ("--operations", ["", "read list", "read,"]),
    ],
)
def test_wrong_option_is_refused(file: str, option: str, values: list[str]) -> None:
    """A name that a line cannot have, a past expiry, and unknown operations are refused."""
    for value in values:
        result = invoke("token", option, value, "--append", file)
        assert result.exit_code == 2
        assert f"Invalid value for '{option}': " in result.stderr
        assert not Path(file).exists()
    rights = f"some of {', '.join(RIGHTS)}, separated by commas"
    assert (rights in result.stderr) == (option == "--operations")


def test_list_shows_names_and_expiry(file: str) -> None:
    """`plantstore tokens list` shows names, expiry and operations, and no token."""
    lines = {
        "hunter2 a\x1bb": "a\\u001bb\tnever\tall",
        "t expires=2020-01-31": "line-2\t2020-01-31\tall\texpired",
        "u v w expires=9999-01-31T12 operations=read": "v w\t9999-01-31T12:00:00Z\tread",
    }
    Path(file).write_text("\n".join(lines))
    assert run("tokens", "list", file).splitlines() == [*lines.values()]


def test_revoke_removes_every_token_of_a_client(file: str) -> None:
    """`plantstore tokens revoke` replaces the lines of a client by a comment, and no other line."""
    kept = b"# all\r\ntwo Flora # kiosk of\nthree kiosk of Flora\n"
    comment = b"# revoked\n"
    Path(file).write_bytes(b"one kiosk of\r\n" + kept + b"two2  kiosk of expires=2020-01-01\n")
    said = run("tokens", "revoke", file, " kiosk\t of ")
    assert said == f"The tokens of kiosk of were removed from {file}.\n"
    assert Path(file).read_bytes() == comment + kept + comment


def test_revoke_keeps_the_names_of_tokens_without_a_name(file: str) -> None:
    """A token without a name has the number of its line as its name, also after a revocation."""
    Path(file).write_text("one\ntwo kiosk\nthree\nfour\n")
    run("tokens", "revoke", file, "kiosk")
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
