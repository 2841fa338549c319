"""deploy/Containerfile, built by buildah on a base that is made from Debian's packages."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT, Connection, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import program, wait_until

MISSING = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(MISSING), reason=f"apt-get install {' '.join(MISSING)}"),
]

# The Python of Debian, instead of that of the official image.
PACKAGES = "python3,python3-venv,ca-certificates"


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[str]:
    """Return the command of buildah, which has built the image `plantstore` without a daemon."""
    folder = tmp_path
    buildah = f"buildah --root {folder}/root --runroot {folder}/run --storage-driver vfs"
    run(f"mmdebstrap --quiet --variant=minbase --include={PACKAGES} bookworm base.tar", folder)
    # The packages of pip, for a machine without its index.
    extras = "gunicorn,metrics,docs,sqlite,postgresql,mysql"
    tools = f"-c {ROOT}/requirements.txt '{ROOT}[{extras}]' 'setuptools>=77' wheel"
    run(f"{shlex.quote(sys.executable)} -m pip download -q -d wheels {tools}", folder)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    base = run(f"{buildah} from scratch", folder).strip()
    for added, place in (("base.tar", "/"), ("wheels", "/wheels"), ("pip.conf", "/etc/pip.conf")):
        run(f"{buildah} add --quiet {base} {added} {place}", folder)
    run(f"{buildah} commit --quiet --rm {base} localhost/base", folder)
    options = "--isolation chroot --layers=false --format docker --build-arg BASE=localhost/base"
    run(f"{buildah} build {options} -f deploy/Containerfile -t plantstore .", ROOT)
    yield buildah
    run(f"{buildah} rm --all", folder)


def test_image_serves_plants(buildah: str, tmp_path: Path) -> None:
    """A container of the image serves as its own user, is healthy, and writes only to /tmp."""
    inspected = orjson.loads(run(f"{buildah} inspect --type image localhost/plantstore", tmp_path))
    image: dict[str, Any] = inspected["Docker"]["config"]
    assert image["User"] == "10001:10001"
    container = run(f"{buildah} from localhost/plantstore", tmp_path).strip()
    root = Path(run(f"{buildah} mount {container}", tmp_path).strip())
    assert (root / "opt/plantstore/bin/plantstore").is_file()
    assert not (root / "src").exists()
    (tmp_path / "start").touch()
    port = free_port()
    start = ["run", "--isolation", "chroot", "--env", f"PORT={port}"]
    start += ["--env", f"PLANTSTORE_TOKENS={TOKEN}", container, "--"]
    command = [*buildah.split(), *start]

    def healthy() -> bool:
        kind, *check = image["Healthcheck"]["Test"]
        assert kind == "CMD"
        done = subprocess.run([*command, *check], timeout=LIMIT, capture_output=True, check=False)
        return done.returncode == 0

    with program(port, [*command, *image["Cmd"]]):
        with Connection(port) as connection:
            assert connection.request(post(new_rose())).status == 200
        assert healthy()
    wait_until(lambda: not healthy())
    # buildah itself may write files of root, for example /etc/hosts.
    new = f"-newer {tmp_path}/start -type f -user 10001"
    assert run(f"find {root} {new} -not -path '{root}/tmp/*'", ROOT) == ""
