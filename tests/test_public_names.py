"""The public names of the package, and those that need SQLAlchemy."""

import sys

import pytest
import sqlalchemy

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
    for module in (
        "plantstore.sql",
        *(name for name in sys.modules if name.startswith("plantstore.sql.")),
    ):
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


def test_sqlalchemy_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQLAlchemy 1.4, a message says which version is needed, and which one the site has."""
    monkeypatch.setattr(sqlalchemy, "__version__", "1.4.54")
    for name in [name for name in sys.modules if name.startswith("plantstore.sql")]:
        monkeypatch.delitem(sys.modules, name)
    message = "SQLStore needs SQLAlchemy 2.0.23 or later. This site has SQLAlchemy 1.4.54."
    with pytest.raises(ImportError, match=message):
        plantstore.SQLStore  # noqa: B018
    with pytest.raises(ValueError, match=f"is installed, but .* cannot be imported: {message}"):
        plantstore.open_store("sqlite:///plants.db")
