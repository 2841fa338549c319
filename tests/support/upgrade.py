"""Another version of the service, which is installed while it runs."""

import re
from pathlib import Path

from tests.support.fresh import copy_project, run
from tests.support.serving import Connection

OLD, NEW = "There is nothing at this path.", "The new version has nothing at this path."
WRONG_PATH = b"GET /roses HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def wheel_of_another_version(folder: Path) -> Path:
    """Return a wheel of version 9.0, which has another text."""
    project = copy_project(folder)
    for name, old, new in (
        ("__init__.py", '__version__ = ".*"', '__version__ = "9.0"'),
        ("errors.py", OLD, NEW),
    ):
        path = project / "plantstore" / name
        text, count = re.subn(old, new, path.read_text())
        assert count == 1
        path.write_text(text)
    run(f"env/bin/pip wheel -q --no-deps -w wheel {project}", folder)
    (wheel,) = (folder / "wheel").iterdir()
    return wheel


def message(port: int) -> str:
    """Return the text of an Error of the service."""
    with Connection(port) as connection:
        return connection.request(WRONG_PATH).body.decode()
