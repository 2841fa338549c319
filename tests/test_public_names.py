"""The public names of the package, and those that need SQLAlchemy."""

import sys

import pytest
import sqlalchemy

import plantstore


@pytest.fixture
def reloaded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the next use of SQLStore import its modules again."""
    for name in [name for name in sys.modules if name.startswith("plantstore.sql")]:
        monkeypatch.delitem(sys.modules, name)
    return monkeypatch


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("sqlalchemy", r"pip install 'plantstore\[sqlite\]'"),
        ("sqlalchemy.dialects.mysql", "^(?!.*pip install).*sqlalchemy.dialects"),
    ],
)
def test_no_sqlalchemy(reloaded: pytest.MonkeyPatch, module: str, message: str) -> None:
    """If SQLAlchemy or a part of it is missing, SQLStore is an ImportError that says so."""
    reloaded.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message) as caught:
        plantstore.SQLStore  # noqa: B018
    assert isinstance(caught.value.__cause__ or caught.value, ModuleNotFoundError)


def test_sqlalchemy_that_is_too_old(reloaded: pytest.MonkeyPatch) -> None:
    """With SQLAlchemy 1.4, a message says which version is needed, and which one the site has."""
    reloaded.setattr(sqlalchemy, "__version__", "1.4.54")
    message = "SQLStore needs SQLAlchemy 2.0.23 or later. This site has SQLAlchemy 1.4.54."
    with pytest.raises(ImportError, match=message):
        plantstore.SQLStore  # noqa: B018
    with pytest.raises(ValueError, match=f"is installed, but .* cannot be imported: {message}"):
        plantstore.open_store("sqlite:///plants.db")


def test_every_public_name_exists() -> None:
    """Each name of __all__ can be imported, and an unknown name raises AttributeError."""
    names: dict[str, object] = {}
    exec("from plantstore import *", names)
    assert {*plantstore.__all__} <= {*names}
    with pytest.raises(AttributeError, match="weeds"):
        plantstore.weeds  # noqa: B018
