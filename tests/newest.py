"""Run tests with each library that is newer than its pin. A failure is a warning."""

import re
import subprocess
import sys
from importlib.metadata import version

from tests.lowest import lowest_versions
from tests.support.serving import ROOT

# The libraries of the documented clients.
CLIENTS = ["httpx", "requests"]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, and return when it has ended."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, text=True, check=False)


def pip(*arguments: str) -> None:
    """Run pip, which must succeed."""
    python("-m", "pip", "-qq", *arguments).check_returncode()


def check(requirement: str) -> None:
    """Run the tests with the newest version of a library, also before its release."""
    library = re.sub(r"\[.*", "", requirement)
    pinned = version(library)
    pip("install", "--pre", "--upgrade", requirement)
    newest = version(library)
    if newest != pinned:
        print(f"{library} {newest} instead of {pinned}", flush=True)
        tests = ["tests/documents"] if library in CLIENTS else []
        if python("-m", "pytest", "-q", *tests).returncode != 0:
            print(f"WARNING: tests fail with {library} {newest}.", flush=True)
        pip("install", "-r", "tests/requirements.txt")


if __name__ == "__main__":
    for pin in [*lowest_versions(), *CLIENTS]:
        check(pin.partition("==")[0])
    print("All libraries are done.")
