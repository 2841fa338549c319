"""The sdist, the wheel and the bill of materials that the step `build` has made in dist/."""

import re
import shlex
import sys
import tarfile
from configparser import RawConfigParser
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import orjson
import pytest
from packaging.metadata import Metadata

from plantstore import __version__
from tests.support.fresh import ENVIRONMENT, run
from tests.support.serving import ROOT, Connection, free_port, post
from tests.support.waiting import program

pytestmark = pytest.mark.build

NAME = f"plantstore-{__version__}"
SDIST = ROOT / "dist" / f"{NAME}.tar.gz"
WHEEL = ROOT / "dist" / f"{NAME}-py3-none-any.whl"
MATERIALS = ROOT / "dist" / f"{NAME}.cdx.json"

CONFIG = RawConfigParser()
CONFIG.read(ROOT / "setup.cfg")
# Newer ones are tested in the step platforms.
PYTHONS = ["3.11", "3.12", "3.13"]
EXTRAS = ",".join(CONFIG["options.extras_require"])
# The programs of this environment come first, also if it has not been activated.
TOOLS = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"


def committed(folder: str = ".") -> set[str]:
    """Return the names of all files of the last commit in a folder."""
    return set(run(f"git ls-tree -r --name-only HEAD {folder}", ROOT).splitlines())


def test_build_is_reproducible(tmp_path: Path) -> None:
    """A later build of the same commit elsewhere, with other settings, has the same hashes."""
    run(f"git clone -q {shlex.quote(str(ROOT))} copy", tmp_path)
    run(f"{TOOLS}; umask 077; export LC_ALL=C TZ=Asia/Tokyo; copy/.ci/build", tmp_path)
    built, again = [
        {file.name: sha256(file.read_bytes()).hexdigest() for file in (folder / "dist").iterdir()}
        for folder in (ROOT, tmp_path / "copy")
    ]
    assert {*built} == {SDIST.name, WHEEL.name, MATERIALS.name}
    assert again == built


def test_sdist(tmp_path: Path) -> None:
    """The sdist has every file of the repository. The tests that read most files pass in it."""
    with tarfile.open(SDIST) as sdist:
        sdist.extractall(tmp_path, filter="data")
    root = tmp_path / NAME
    names = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    made = {name for name in names if name == "PKG-INFO" or name.startswith("plantstore.egg-info/")}
    assert names - made == committed()
    python = f"{shlex.quote(sys.executable)} -m pytest -n 0 -p no:cacheprovider"
    files = "tests/documents/test_{clients,readme,recipes}.py"
    passed = run(f"{python} {files} -k 'not commands'", root)
    assert re.search(r"=+ \d+ passed.* in .* =+\n$", passed)


def test_wheel_has_the_package_alone() -> None:
    """The wheel has all files of the package, also py.typed and the page, and nothing else."""
    with ZipFile(WHEEL) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
    assert names - about == committed("plantstore")
    assert f"{NAME}.dist-info/licenses/LICENSE" in about


def links(description: str) -> list[str]:
    """Return the links and pictures of a description, as a package index shows it."""
    from readme_renderer import markdown

    html = markdown.render(description)
    anchors = re.findall(r' id="(.*?)"', html)
    found = re.findall(r'(?:href|src)="(.*?)"', html)
    return [link for link in found if link.removeprefix("#") not in anchors]


def test_metadata() -> None:
    """The metadata name the licence and each Python. On a package index, each link works."""
    with ZipFile(WHEEL) as wheel:
        about = Metadata.from_email(wheel.read(f"{NAME}.dist-info/METADATA"))
    assert (about.license_expression, about.license_files) == ("MIT", ["LICENSE"])
    assert not [name for name in about.classifiers or () if name.startswith("License ::")]
    assert str(about.requires_python) == f">={PYTHONS[0]}"
    assert "docs/index.md has all pages" in (about.description or "")
    assert all(link.startswith("https://") for link in links(about.description or ""))


def test_bill_of_materials() -> None:
    """The bill of materials is valid CycloneDX, and has what requirements.txt pins."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = MATERIALS.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    materials = orjson.loads(text)
    root = materials["metadata"]["component"]
    assert (root["name"], root["version"]) == ("plantstore", __version__)
    assert {f"{part['name']}=={part['version']}" for part in materials["components"]} == set(
        (ROOT / "requirements.txt").read_text().split()
    )


@pytest.mark.parametrize("version", PYTHONS)
def test_wheel_serves_on_each_python(version: str, tmp_path: Path) -> None:
    """On each supported Python, the wheel with all extras fits together, and serves."""
    # The first one may be a program of pyenv that only says which versions it has.
    make = "$python -m venv --without-pip env && break"
    works = f"for python in $(which -a python{version}); do {make}; done"
    if not run(f"{works} 2>/dev/null; ls env || true", tmp_path):
        pytest.skip(f"install Python {version}")
    pip = f"{shlex.quote(sys.executable)} -m pip --python env"
    run(f"{pip} install -q --no-compile {shlex.quote(f'{WHEEL}[{EXTRAS}]')}", tmp_path)
    assert run(f"{pip} check", tmp_path) == "No broken requirements found.\n"
    assert run("env/bin/plantstore --version", tmp_path) == f"plantstore {__version__}\n"
    port = free_port()
    settings = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}
    command = ["env/bin/plantstore", "serve", f"--bind=127.0.0.1:{port}", "--store=sqlite:///a.db"]
    running = program(port, command, cwd=tmp_path, env=ENVIRONMENT | settings)
    with running as server, Connection(port) as client:
        assert client.request(post(b'{"id":1,"name":"Rose"}')).status == 200
    assert server.returncode == 0
