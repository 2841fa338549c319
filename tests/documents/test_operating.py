"""The commands and the examples of docs/operating.md."""

import re
import shlex
import sys
from pathlib import Path

from plantstore.tokens.lines import read_tokens
from tests.support.fresh import run
from tests.support.log import LINE
from tests.support.readme import block
from tests.support.serving import ROOT


def commands(name: str) -> str:
    """Return the commands of a block of docs/operating.md, for this environment."""
    python = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "plantstore"])
    commands = block(name, "docs/operating.md").replace(".venv/bin/plantstore", python)
    return commands.replace("2027-01-31", "9999-01-31")


def test_commands_that_replace_a_token(tmp_path: Path) -> None:
    """The commands of docs/operating.md append a token, replace it, and list the rest."""
    token = run(commands("append"), tmp_path)
    assert re.fullmatch("plt_[0-9A-Za-z]{49}\\n", token)
    assert "plt_[0-9A-Za-z]{49}" in (ROOT / "docs" / "operating.md").read_text()
    (tokens,) = read_tokens((tmp_path / "tokens.txt").read_text())
    assert (tokens.client, str(tokens.expires)) == ("kiosk", "9999-01-31 00:00:00+00:00")
    *_, last = run(commands("rotate"), tmp_path).splitlines()
    assert last == "kiosk-2\tnever"


def test_example_of_a_file_of_tokens() -> None:
    """The example of a file of tokens is valid."""
    clients = [one.client for one in read_tokens(block("file", "docs/operating.md"))]
    assert clients == ["kiosk", "Flora of the greenhouse"]


def test_example_of_a_line_of_the_log() -> None:
    """The example of a line of the log has its format."""
    assert LINE.fullmatch(block("log", "docs/operating.md").rstrip("\n"))
