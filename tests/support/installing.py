"""Packages of other authors, as if pip had installed them."""

import importlib
from itertools import count
from pathlib import Path

import pytest

# Python keeps imported modules, so each package gets a module of its own.
_numbers = count(1)


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, package: str, scheme: str, source: str
) -> str:
    """Install a package with an entry point for a scheme for a test; return its module."""
    module = f"other_store_{next(_numbers)}"
    (folder / f"{module}.py").write_text(source)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[plantstore.stores]\n{scheme} = {module}:open\n")
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return module
