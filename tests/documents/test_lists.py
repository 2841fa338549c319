"""The pages for developers and operators list what the project has: steps, modules, messages."""

import ast
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from configparser import RawConfigParser
from datetime import date
from logging import Logger
from pathlib import Path

import pytest
from click import Context
from gunicorn.config import Config

import plantstore
import plantstore.log
import plantstore.testing
from plantstore import __version__, open_store
from plantstore.blueprint import OPERATIONS
from plantstore.cli import main
from plantstore.errors import ERRORS
from tests.lowest import lowest_versions
from tests.support.fresh import attempt, run
from tests.support.readme import block, rows
from tests.support.serving import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PLATFORMS = (ROOT / ".ci" / "platforms").read_text()
SCRIPT = (ROOT / ".ci" / "run").read_text()
CHANGES = (ROOT / "CHANGELOG.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()
VERSIONS = (ROOT / "docs" / "versions.md").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()
WORKFLOWS = ROOT / ".github" / "workflows"
PAGES = [path for folder in ("", "docs", "benchmarks") for path in (ROOT / folder).glob("*.md")]
DOCUMENTS = "".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
# The methods of a logger whose lines an operator should act on, and an exception with a reason.
CALLS = {"warning", "error", "exception", "StoreUnavailable"}


def test_steps() -> None:
    """CONTRIBUTING.md, the workflow and .ci/run have every step; those of times run at the end."""
    config = RawConfigParser()
    config.read(ROOT / "setup.cfg")
    steps = {*re.split(r",\s*", config["tox:tox"]["env_list"])}
    rows = re.findall(r"^\| (`.*?`) \|", CONTRIBUTING, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", " ".join(rows))} == steps
    begun = r"^(?:side_by_side|finish|step) ([a-z ]+?)(?: (?:tox|\.).*)?$"
    lines = re.findall(begun, SCRIPT, re.MULTILINE)
    inside = re.findall(r"tox run -q -e (\w+)", PLATFORMS)
    assert {*" ".join(lines).split(), *inside, "fast"} == steps
    assert lines[-1] == "timed"
    workflow = (WORKFLOWS / "tests.yml").read_text()
    assert {*re.findall(r"^ {10}- (\w+)$", workflow, re.MULTILINE)} == steps
    assert "grep -v '^#' .ci/packages" in SCRIPT
    assert "grep -v '^#' .ci/packages" in workflow


def test_versions() -> None:
    """docs/versions.md has the versions that the steps test, and the lowest that are declared."""
    table = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d., ]+) \|", VERSIONS, re.MULTILINE)
    tested = {name.lower(): (lowest, versions.split(", ")) for name, lowest, versions in table}
    files = [ROOT / folder / "requirements.txt" for folder in ("tests", "")]
    pins = "".join(file.read_text() for file in files)
    newest = dict(re.findall(r"(?m)^(\w+)(?:\[\w+\])?==(.*)$", pins.lower()))
    lowest = dict(re.findall(r"(\w+)(?:\[\w+\])?==(\S+)", " ".join(lowest_versions())))
    for name in lowest.keys() & tested.keys():
        assert tested[name][0] == lowest[name]
        assert {lowest[name], newest[name]} <= {*tested[name][1]}
    assert {"flask", "marshmallow", "sqlalchemy", "psycopg", "pymysql", "gunicorn"} <= tested.keys()
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.cfg").read_text())
    assert tested["python"] == (classifiers[0], classifiers)
    assert {*re.findall(r"=python(3\.\d+)", PLATFORMS)} == {*classifiers[-2:]}
    for name, version in re.findall(r"(\w+)==([\d.]+)\.\*", PLATFORMS):
        assert any(it.startswith(version) for it in tested[name][1])
    (servers,) = re.findall(r"^postgresql=\((.*)\)$", PLATFORMS, re.MULTILINE)
    assert {*servers.split()} <= {*tested["postgresql"][1]}
    needed = {name.split(",")[0]: first for name, first, _ in rows("package", "docs/embedding.md")}
    assert needed.keys() == {"Python", "Flask", "Werkzeug", "marshmallow", "SQLAlchemy"}
    declared = {**lowest, "python": classifiers[0]}
    assert all(declared[name.lower()] == needed[name] for name in needed)


def test_files_of_the_documents() -> None:
    """Each file of the project that a document names exists."""
    folders = r"(?<![\w/.-])(?:benchmarks|deploy|docs|examples|plantstore|tests)"
    assert len(names := {*re.findall(rf"{folders}/[\w./*-]*\w", DOCUMENTS)}) > 50
    for name in [*names, *re.findall(r"`([\w./]+(?:\.\w+|/))`", CONTRIBUTING)]:
        is_made = name in {"dist/", "v0.2.0", "0.2.0.dev0"}
        assert is_made or [*ROOT.glob(name), *(ROOT / "plantstore").glob(name)] != [], name


def test_urls_of_the_documents() -> None:
    """Each URL of a store in a document can be opened, those in the tables of stores too."""
    found = r"\b(memory://|(?:sqlite|postgresql|mysql)://[^\s`\"')|>]+)"
    assert len(urls := {*re.findall(found, DOCUMENTS)}) > 10
    for url in urls:
        assert open_store(url.rstrip(":.,")).one_process == (url == "memory://")


def test_commands_of_the_documents(tmp_path: Path) -> None:
    """The shell, the program and gunicorn accept each command and option in a document."""
    shell = re.findall(r"^```sh\n(.*?)^```$", DOCUMENTS, re.MULTILINE | re.DOTALL)
    (tmp_path / "commands.sh").write_text("".join(shell))
    assert run("bash -n commands.sh 2>&1", tmp_path) == ""
    given = rf"\bplantstore ({'|'.join(main.commands)})\b([^`\n|&;<>\\]*)"
    for name, arguments in re.findall(given, DOCUMENTS):
        own, _, of_gunicorn = arguments.partition(" -- ")
        command = main.commands[name]
        command.make_parser(Context(command)).parse_args(shlex.split(own))
        Config().parser().parse_args(shlex.split(of_gunicorn))


def test_version_of_the_change_log() -> None:
    """The first heading of CHANGELOG.md has the version with its date, or the next version."""
    version, said = re.findall(r"^## (\S+) \((.*)\)$", CHANGES, re.MULTILINE)[0]
    assert __version__ in {version, f"{version}.dev0"}
    assert said == "not released yet" if ".dev" in __version__ else date.fromisoformat(said)


@pytest.mark.parametrize("said", ["2026-12-01", "not released yet"])
@pytest.mark.parametrize("tag", ["v1.2.0", "v1.2.00", "v1.2", "v1.1.0", "v"])
def test_tag_of_a_release(tag: str, said: str, tmp_path: Path) -> None:
    """A tag publishes the package only if it is its version, with a date, and after all steps."""
    (tmp_path / "plantstore").mkdir()
    (tmp_path / "plantstore/__init__.py").write_text('__version__ = "1.2.0"\n')
    changes = f"# Changes\n\n## 1.2.0 ({said})\n\nNew.\n\n## 1.1.0 (2026-11-30)\n\nOld.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    workflow = (WORKFLOWS / "release.yml").read_text()
    (checks,) = re.findall(r"run: \|\n((?: +grep .*\n)+)", workflow)
    (notes,) = re.findall(r"(awk .*) > notes", workflow)
    command = ["env", f"GITHUB_REF_NAME={tag}", "bash", "-ec", checks + notes]
    done = attempt(command, cwd=tmp_path)
    is_released = (tag, said) == ("v1.2.0", "2026-12-01")
    assert (done.returncode == 0, done.stdout) == (is_released, "\nNew.\n\n" * is_released)
    needs = dict(re.findall(r"^  (\w+):\n    needs: (\w+)$", workflow, re.MULTILINE))
    assert [needs[job] for job in ("steps", "image", "publish")] == ["version", "steps", "image"]
    assert needs["release"] == needs["pages"] == "publish"


@pytest.mark.parametrize("code", ["def test(): pytest.skip('a_b')", "pytest.importorskip('a_b')"])
@pytest.mark.parametrize("ci", ["true", ""])
def test_skip_in_continuous_integration(ci: str, code: str, tmp_path: Path) -> None:
    """With ``CI=true``, a test or a file that is skipped has failed, and says why."""
    (tmp_path / "test_it.py").write_text(f"import pytest\n{code}\n")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.conftest", tmp_path]
    done = attempt(["env", f"CI={ci}", *command], cwd=ROOT)
    reason = re.search("no test may be skipped: .*a_b", done.stdout)
    assert (reason is not None, done.returncode in {1, 2}) == (bool(ci), bool(ci))


def test_api_has_every_public_name() -> None:
    """docs/api.md describes each public name of the package and of plantstore.testing."""
    names = re.findall(r"^\.\. auto\w+:: plantstore\.(\w+)$", API, re.MULTILINE)
    assert sorted(names) == sorted([*plantstore.__all__, "testing"])
    (suites,) = re.findall(r"^\.\. automodule:: .*\n   :members: (.*)$", API, re.MULTILINE)
    assert sorted(suites.split(", ")) == plantstore.testing.__all__


LOGGERS = [it.name for it in vars(plantstore.log).values() if isinstance(it, Logger)]
METHODS = [name for name, it in vars(plantstore.Store).items() if name[0] != "_" and callable(it)]
# What the documents list: each name, and the pages that must have it.
LISTED: dict[str, tuple[Iterable[str], str]] = {
    "operations": (OPERATIONS, "../README quick-start errors settings glossary"),
    "signals": ([it for it in plantstore.__all__ if it.startswith("plant_")], "api recipes-pages"),
    "loggers": (LOGGERS, "embedding"),
    "methods of a store": (METHODS, "stores"),
}


@pytest.mark.parametrize(("names", "pages"), LISTED.values(), ids=LISTED)
def test_lists_of_names(names: Iterable[str], pages: str) -> None:
    """The documents have each operation, signal, logger, method of a store, and setting."""
    for page in pages.split():
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def described() -> Iterator[str]:
    """Yield the paths of the modules in the tree of the document."""
    folders: list[str] = []
    for line in block("tree", "docs/architecture.md").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name.rstrip("/")]
        if not name.endswith("/"):
            yield "/".join(folders)


def test_tree_of_the_document_is_that_of_the_package() -> None:
    """The tree in docs/architecture.md lists exactly the modules of the package."""
    found = [str(module.relative_to(ROOT)) for module in (ROOT / "plantstore").rglob("*.py")]
    assert sorted(described()) == sorted(found)


def texts(module: Path) -> Iterator[str]:
    """Yield the longest fixed text of each line that a module logs, and of each reason."""
    nodes = [*ast.walk(ast.parse(module.read_text()))]
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    constants = {ast.unparse(node.targets[0]): node.value for node in assigned}
    for call in nodes:
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in CALLS:
            parts = [part for argument in call.args[:1] for part in ast.walk(argument)]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            for name in names:
                parts += ast.walk(constants.get(name, call.func))
            fixed = [part.value for part in parts if isinstance(part, ast.Constant)]
            pieces = re.split("%[a-z]", "%s".join(map(str, fixed)))
            yield max(pieces, key=len).strip(" :.")[:20].lower()


def test_every_line_of_the_log_is_explained() -> None:
    """The page has each warning and error that the service can log, and each reason of a 5xx."""
    found = {text for path in (ROOT / "plantstore").rglob("*.py") for text in texts(path)}
    assert len(found) > 20
    assert [text for text in found if text not in TROUBLESHOOTING.lower()] == []
    assert all(f"`{number}: " in TROUBLESHOOTING for number in ERRORS if number > 50000)
