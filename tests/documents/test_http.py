"""The examples and the table of docs/http.md."""

import re
import shlex
import shutil

import pytest

from plantstore.errors import ERRORS
from tests.support.fresh import run
from tests.support.readme import block
from tests.support.serving import ROOT, Gunicorn

FILE = "docs/http.md"
TEXT = (ROOT / FILE).read_text()
# The errors that no request of a client causes by itself.
FAULTS = {50001, 50301, 50302, 50303}


@pytest.mark.server
@pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")
def test_examples_of_requests() -> None:
    """Each command of docs/http.md, in this order, has the response that follows it."""
    *settings, program = shlex.split(block("http-serve", FILE))
    assert program == ".venv/bin/gunicorn"
    environment = dict(setting.split("=", 1) for setting in settings)
    variables = block("http-variables", FILE)
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    examples = re.findall(r"^\$ (.*)\n((?:[^$].*\n)+)", "".join(blocks), re.MULTILINE)
    assert len(examples) == "".join(blocks).count("$ curl ") + 1 == 20
    with Gunicorn(**environment) as service:
        variables = variables.replace(":8000", f":{service.port}")
        for command, expected in examples:
            assert run(f"{variables}{command}", ROOT).rstrip("\n") == expected.rstrip("\n")


def test_every_error_has_advice_and_an_example() -> None:
    """The table says what to do about every error. Each that a client causes has an example."""
    advice = re.findall(
        r"^\| (\d{5}) \| (no|once|(?:only if|after) [^|]+) \| \S", TEXT, re.MULTILINE
    )
    assert [int(number) for number, _ in advice] == [*ERRORS]
    for number, again in advice:
        assert ("Retry-After" in again) == ("Retry-After" in ERRORS[int(number)][1])
    examples = {int(number) for number in re.findall(r'^{"error":(\d+),', TEXT, re.MULTILINE)}
    assert examples == {*ERRORS} - FAULTS
