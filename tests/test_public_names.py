"""The public names of the package, and those that need SQLAlchemy."""

import sys

import pytest

import plantstore


def test_sql_store_with_a_missing_sqlalchemy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If SQLAlchemy is missing, SQLStore is an ImportError that has the cause."""
    for module in ("plantstore.sql", "plantstore.sql._store"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"pip install 'plantstore\[sqlite\]'") as caught:
        plantstore.SQLStore  # noqa: B018
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_sql_store_with_a_broken_sqlalchemy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If SQLAlchemy is installed but lacks a module, the ImportError names that module."""
    for module in ("plantstore.sql", "plantstore.sql._store", "plantstore.sql._tables"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy.dialects.mysql", None)
    with pytest.raises(ImportError, match="sqlalchemy.dialects") as caught:
        plantstore.SQLStore  # noqa: B018
    assert "pip install" not in str(caught.value)


def test_every_public_name_exists() -> None:
    """Each name of __all__ can be imported."""
    names: dict[str, object] = {}
    exec("from plantstore import *", names)
    assert {*plantstore.__all__} <= {*names}


def test_unknown_attribute_raises_attribute_error() -> None:
    """An unknown name of the package raises AttributeError."""
    with pytest.raises(AttributeError, match="weeds"):
        plantstore.weeds  # noqa: B018
