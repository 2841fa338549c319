"""The plantstore command in the process of a test."""

import os
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from plantstore.cli import main
from tests.support.fresh import attempt
from tests.support.reloading import ANYWHERE
from tests.support.serving import ROOT

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
