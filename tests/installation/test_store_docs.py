"""The store of docs/stores.md, in a package of its own."""

import re
from pathlib import Path

import pytest

from tests.support.fresh import copy_project, run
from tests.support.readme import block

pytestmark = pytest.mark.install

FILES = {
    "plantstore_folder.py": "folder-store",
    "pyproject.toml": "folder-pyproject",
    "test_plantstore_folder.py": "folder-tests",
}


def test_store_of_the_docs_in_a_package_of_its_own(tmp_path: Path) -> None:
    """The document's store passes the shipped suite, and works by URL once it is installed."""
    copy_project(tmp_path)
    package = tmp_path / "plantstore-folder"
    package.mkdir()
    for file, name in FILES.items():
        (package / file).write_text(block(name, "docs/stores.md"))
    tests = run(block("folder-install", "docs/stores.md"), package)
    assert re.search(r"=+ \d{2} passed in .* =+\n$", tests)
    used = run(block("folder-use", "docs/stores.md"), package)
    monstera = '{"id":1,"name":"Monstera","tag":"indoor"}\n'
    assert used == f"1 added, 0 already there, 0 different\n{monstera}"
    plantstore = "PLANTSTORE_STORE=folder://plants .venv/bin/plantstore"
    (package / "plants.jsonl").write_text(monstera + '{"id":2,"name":"Rose"}\n')
    imported = run(f"{plantstore} import plants.jsonl", package)
    assert imported == "1 added, 1 already there, 0 different\n"
    unknown = run(".venv/bin/plantstore export --store foo://x 2>&1 || true", package)
    assert "folder://" in unknown
