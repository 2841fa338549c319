"""The command `plantstore token`."""

import shlex
import subprocess
from pathlib import Path

import pytest

from plantstore import Client, StaticTokens
from plantstore.blueprint import RIGHTS
from plantstore.settings import Settings
from tests.support.commands import COMMAND, Run, invoke


def test_line_is_appended_to_a_file(tmp_path: Path) -> None:
    """`plantstore token NAME OPTIONS >> FILE` is the whole procedure; the token is shown once."""
    path = tmp_path / "tokens"
    options = "' kiosk  1' expires=9999-01-31 operations=read,list"
    shell = f"{shlex.join(COMMAND)} token {options} >> {shlex.quote(str(path))}"
    made = set()
    for _ in range(2):
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
        assert done.stdout == ""
        made.add(done.stderr.removesuffix("\n"))
    check = Settings({"PLANTSTORE_TOKENS_FILE": str(path)}).verify_token()
    assert [check(token) for token in made] == [Client("kiosk 1", ("read", "list"))] * 2
    assert len(path.read_text().splitlines()) == 2
    assert not any(token in path.read_text() for token in made)


def test_token_without_a_name(run: Run) -> None:
    """Without a name, the line is a digest for PLANTSTORE_TOKENS. A token has 256 bits."""
    result = run("token")
    token, digest = result.stderr.strip(), result.stdout.strip()
    assert (token[:4], len(token[4:]) * 6 >= 256) == ("plt_", True)
    assert StaticTokens([digest])(token) == "token-1"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        *(("kiosk expire=9999-01-31", "invalid name"), ("kiosk --all", "invalid name")),
        *(("kiosk plt_x", "second token"), ("kiosk #1 operations=read", "comment")),
        *(("kiosk expires=x", "invalid expires="), ("kiosk expires=2020-01-31", "in the past")),
        *(("kiosk operations=fly", f"{', '.join(RIGHTS)}"), ("kiosk\udcff", "not UTF-8")),
    ],
)
def test_wrong_line_is_refused(words: str, fault: str) -> None:
    """A name, date or right that the service would refuse is exit code 2, and shows no token."""
    result = invoke("token", "--", *words.split(" "))
    assert (result.exit_code, result.stdout) == (2, "")
    assert fault in result.stderr.splitlines()[-1]
    assert "plt_" not in result.stderr


def test_name_is_on_one_line() -> None:
    """A name with a line break cannot add a second line, which would be a token."""
    line = invoke("token", "kiosk\nplain\rx").stdout
    assert line.splitlines()[0].endswith(" kiosk plain x")
    assert line.count("\n") == 1


def test_token_that_cannot_be_stored_is_not_shown() -> None:
    """If the line cannot be written, because the disk is full, no token is shown."""
    shell = f"{shlex.join(COMMAND)} token kiosk >> /dev/full"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    message = "Error: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)
