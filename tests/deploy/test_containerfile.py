"""deploy/Containerfile, built by buildah on a base that is made from Debian's packages."""

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT, Connection, free_port, listening, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

MISSING = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(MISSING), reason=f"apt-get install {' '.join(MISSING)}"),
]

# The Python of Debian, instead of that of the official image.
PACKAGES = "python3,python3-venv,ca-certificates"


class Builder:
    """buildah with its files in a folder. It needs neither a daemon nor a namespace."""

    def __init__(self, folder: Path) -> None:
        storage = f"--root {folder}/root --runroot {folder}/run --storage-driver vfs"
        self.command = f"buildah {storage}"

    def run(self, command: str, folder: Path = ROOT) -> str:
        """Run a command of buildah, which must succeed; return its standard output."""
        return run(f"{self.command} {command}", folder).strip()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Return a builder that has built the image `plantstore`."""
    folder = tmp_path_factory.mktemp("builder")
    builder = Builder(folder)
    run(f"mmdebstrap --quiet --variant=minbase --include={PACKAGES} bookworm base.tar", folder)
    base = builder.run("from scratch")
    builder.run(f"add --quiet {base} {folder}/base.tar /")
    (folder / "base.tar").unlink()
    # The packages of pip, for a machine without its index.
    wheels = folder / "wheels"
    extras = "gunicorn,metrics,docs,sqlite,postgresql,mysql"
    tools = f"-c {ROOT}/requirements.txt '{ROOT}[{extras}]' 'setuptools>=77' wheel"
    run(f"{shlex.quote(sys.executable)} -m pip download -q -d {wheels} {tools}", folder)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    builder.run(f"copy --quiet {base} {wheels} /wheels")
    builder.run(f"copy --quiet {base} {folder}/pip.conf /etc/pip.conf")
    builder.run(f"commit --quiet --rm {base} localhost/base")
    options = "--isolation chroot --layers=false --format docker --build-arg BASE=localhost/base"
    builder.run(f"build {options} -f deploy/Containerfile -t plantstore .")
    yield builder
    builder.run("rm --all")


@pytest.fixture(scope="module")
def image(builder: Builder) -> dict[str, Any]:
    """Return the configuration of the image."""
    inspected = orjson.loads(builder.run("inspect --type image localhost/plantstore"))
    config: dict[str, Any] = inspected["Docker"]["config"]
    return config


def test_image_serves_plants(builder: Builder, image: dict[str, Any], tmp_path: Path) -> None:
    """A container of the image serves plants as its own user, and writes only to /tmp.

    Its health check succeeds while it runs, and fails afterwards.
    """
    container = builder.run("from localhost/plantstore")
    root = Path(builder.run(f"mount {container}"))
    (tmp_path / "start").touch()
    port = free_port()
    start = ["run", "--isolation", "chroot", "--env", f"PORT={port}"]
    start += ["--env", f"PLANTSTORE_TOKENS={TOKEN}", container, "--"]
    command = [*builder.command.split(), *start]
    with subprocess.Popen([*command, *image["Cmd"]]) as process:
        try:
            wait_until(lambda: process.poll() is not None or listening(port))
            with Connection(port) as connection:
                connection.send(post(new_rose()))
                assert connection.receive().status == 200
            assert healthy(command, image)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)
    wait_until(lambda: not healthy(command, image))
    # buildah itself may write files of root, for example /etc/hosts.
    new = f"-newer {tmp_path}/start -type f -user 10001"
    written = run(f"find {root} {new} -not -path '{root}/tmp/*'", ROOT)
    assert written == ""


def healthy(command: list[str], image: dict[str, Any]) -> bool:
    """Return whether the health check of the image succeeds in a container."""
    kind, *check = image["Healthcheck"]["Test"]
    assert kind == "CMD"
    done = subprocess.run([*command, *check], timeout=LIMIT, capture_output=True, check=False)
    return done.returncode == 0


def test_image_has_no_source_and_is_not_root(builder: Builder, image: dict[str, Any]) -> None:
    """The image runs as a user who is not root, and has the package but not the repository."""
    assert image["User"] == "10001:10001"
    container = builder.run("from localhost/plantstore")
    root = Path(builder.run(f"mount {container}"))
    assert (root / "opt/plantstore/bin/plantstore").is_file()
    assert not (root / "src").exists()
