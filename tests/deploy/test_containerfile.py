"""deploy/Containerfile, built by buildah on a base that is made from Debian's packages."""

import os
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import orjson
import pytest

from plantstore import __version__, open_store
from tests.support.databases import installed
from tests.support.fresh import attempt, run
from tests.support.readme import block
from tests.support.serving import ROOT, Connection, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import program, wait_until

pytestmark = [
    pytest.mark.deploy,
    # Of which pip loads the packages.
    pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="use the Python of Debian 13"),
]

# The Python of Debian, instead of that of the official image.
PACKAGES = "python3,python3-venv,ca-certificates"


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the command of buildah, which has built the image `plantstore` without a daemon."""
    for needed in ("buildah", "mmdebstrap"):
        installed(needed, needed)
    folder = tmp_path_factory.mktemp("buildah")
    buildah = f"buildah --root {folder}/root --runroot {folder}/run --storage-driver vfs"
    run(f"mmdebstrap --quiet --variant=minbase --include={PACKAGES} trixie base.tar", folder)
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


def test_image_serves_plants(buildah: str, public_folder: Path) -> None:
    """A container serves as its own user, is healthy also with a proxy, and writes only to /tmp.

    The image has the labels of OCI, with the version of the service. In its environment are the
    versions of the bill of materials, the drivers, pip, and nothing else.
    The command of docs/deploy.md makes a token in a folder; a volume keeps the SQLite file.
    """
    inspect = f"{buildah} inspect --type image localhost/plantstore"
    image: dict[str, Any] = orjson.loads(run(inspect, public_folder))["Docker"]["config"]
    labels, prefix = image["Labels"], "org.opencontainers.image."
    assert labels[f"{prefix}version"] == __version__
    assert {f"{prefix}{name}" for name in ("title", "description", "licenses")} <= {*labels}
    assert image["User"] == "10001:10001"
    container = run(f"{buildah} from localhost/plantstore", public_folder).strip()
    root = Path(run(f"{buildah} mount {container}", public_folder).strip())
    assert (root / "opt/plantstore/bin/plantstore").is_file()
    assert not (root / "src").exists()
    (packages,) = root.glob("opt/plantstore/lib/*/site-packages")
    found = {f"{it.name}=={it.version}".lower() for it in distributions(path=[str(packages)])}
    pins = {f"plantstore=={__version__}", *(ROOT / "requirements.txt").read_text().lower().split()}
    assert pins <= found
    drivers = {"psycopg", "psycopg-binary", "pymysql"}
    assert {name.partition("==")[0] for name in found - pins} == {"pip", *drivers}
    kept = (root / "var/lib/plantstore").stat()
    assert (kept.st_uid, kept.st_gid, kept.st_mode & 0o777) == (10001, 10001, 0o700)
    for name in ("tokens", "plants"):
        (public_folder / name).mkdir()
        os.chown(public_folder / name, 10001, 10001)
    within = f"{buildah} run --isolation chroot"
    make = block("container-token", "docs/deploy.md").rpartition(" plantstore plantstore ")[2]
    made = run(f"exec 2>&1; {within} {container} -- plantstore {make}", public_folder)
    token = made.split()[-1]
    (public_folder / "start").touch()
    port = free_port()
    settings = {
        "PORT": str(port),
        "PLANTSTORE_TOKENS_FILE": "/etc/plantstore/tokens",
        "PLANTSTORE_STORE": "sqlite:////var/lib/plantstore/plants.db",
    }
    options = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    for folder, place in (("tokens", "/etc/plantstore:ro"), ("plants", "/var/lib/plantstore")):
        options += ["--volume", f"{public_folder}/{folder}:{place}"]
    # Docker sets the proxy of a company in each container. Here, nothing listens at its port.
    options += ["--env", "http_proxy=http://127.0.0.1:1"]
    command = [*within.split(), *options, container, "--"]

    def healthy() -> bool:
        kind, *check = image["Healthcheck"]["Test"]
        assert kind == "CMD"
        return attempt([*command, *check]).returncode == 0

    with program(port, [*command, *image["Cmd"]]):
        with Connection(port) as connection:
            request = post(new_rose()).replace(TOKEN.encode(), token.encode())
            assert connection.request(request).status == 200
        assert healthy()
    wait_until(lambda: not healthy())
    with open_store(f"sqlite:///{public_folder}/plants/plants.db") as store:
        assert len(store) == 1
    # buildah itself may write files of root, for example /etc/hosts.
    new = f"-newer {public_folder}/start -type f -user 10001"
    assert run(f"find {root} {new} -not -path '{root}/tmp/*'", ROOT) == ""
