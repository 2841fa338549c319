"""The plantstore command in the process of a test."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import signature
from io import FileIO
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from plantstore.cli import main
from tests.support.fresh import attempt
from tests.support.reloading import ANYWHERE
from tests.support.serving import LIMIT, ROOT

Run = Callable[..., Result]


def invoke(*arguments: str, **options: Any) -> Result:
    """Run the plantstore command, with standard output and standard error apart."""
    # Before click 8.2, they are apart only on request.
    apart: Any = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    result = CliRunner(**apart).invoke(main, arguments, **options)
    print(result, ascii(result.output))  # In the report of a test that fails.
    return result


# The command as another process; the working directory may be any folder.
MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from plantstore.cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN]


def refused(*arguments: str, folder: Path, **environment: str) -> str:
    """Start a service that must refuse to start; return its message of one line."""
    command = [sys.executable, "-m", *arguments]
    done = attempt(command, cwd=folder, env={**os.environ, **ANYWHERE, **environment})
    assert done.returncode != 0, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line and not line.startswith("[")]
    return line


def run_on_a_terminal(command: list[str]) -> tuple[bytes, str]:
    """Run a command whose standard error is a terminal; return both of its outputs."""
    import pty  # Windows has no such module.

    controller, terminal = pty.openpty()
    with open(controller, "rb", buffering=0) as screen, ThreadPoolExecutor(1) as reader:
        shown = reader.submit(_read_all, screen)
        with open(terminal, "wb", buffering=0) as errors:
            output = subprocess.check_output(command, stderr=errors, timeout=LIMIT)
        return output, shown.result().decode()


def steps(shown: str) -> list[str]:
    """Return the different percentages that a progress bar has shown, without its end."""
    return [*dict.fromkeys(re.findall(r"(\d+)%", shown.rpartition("100%")[0]))]


def _read_all(screen: FileIO) -> bytes:
    """Return what a terminal shows until every process has closed it."""
    shown = b""
    # Linux reports the end of a terminal as an error.
    with suppress(OSError):
        while piece := screen.read(4096):
            shown += piece
    return shown
