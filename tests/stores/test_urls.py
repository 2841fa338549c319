"""open_store: a missing SQLAlchemy, missing and broken drivers, and stores of other packages."""

import os
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
import sqlalchemy

import plantstore
from plantstore import Plant, open_store
from plantstore.stores.urls import public_url
from tests.support.databases import Place
from tests.support.installing import install
from tests.support.stores import refusal

# Returns the name of the module of a package that it installs: (package, scheme, source).
Install = Callable[[str, str, str], str]


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package whose entry point opens a store."""
    return lambda *arguments: install(monkeypatch, tmp_path, *arguments)


def forget(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let Python import these modules, and SQLStore, again."""
    for module in [*modules, *(name for name in sys.modules if name.startswith("plantstore.sql"))]:
        monkeypatch.delitem(sys.modules, module, raising=False)


# The schemes of each database, by its driver and the extra that installs it.
SCHEMES = {
    ("sqlite3", "sqlite"): ["sqlite"],
    ("psycopg", "postgresql"): ["postgresql", "postgres", "postgresql+psycopg"],
    ("pymysql", "mysql"): ["mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"],
}
ALL = [*chain(*SCHEMES.values())]


def test_every_scheme_opens_a_usable_store(place: Place) -> None:
    """Each scheme of a database opens a store of this database."""
    own, _, address = place.url.partition("://")
    family = next(schemes for schemes in SCHEMES.values() if own in schemes)
    for id, scheme in enumerate(family):
        with open_store(f"{scheme}://{address}") as store:
            store.add(Plant(id, scheme))
            assert [plant.name for plant in store] == family[: id + 1]


def test_memory_url_opens_a_new_store() -> None:
    """memory:// opens a new, empty MemoryStore at each call."""
    open_store("memory://").add(Plant(1, "Rose"))
    assert len(open_store("memory://")) == 0
    assert refusal("memory://x").endswith("must be exactly memory://")


UNKNOWN = ["", "memory", "memory:", "MEMORY://", "foo://me:hunter2@host/db", "me:hunter2@host"]


@pytest.mark.parametrize("url", UNKNOWN)
def test_unknown_url_is_refused(url: str) -> None:
    """An unknown URL is refused, and the message lists all schemes."""
    listed = refusal(url).partition("one of: ")[2].split(", ")
    assert listed == ["memory://", *[f"{scheme}://" for scheme in ALL]]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("sqlalchemy", r"pip install 'plantstore\[sqlite\]'"),
        ("sqlalchemy.dialects.mysql", "^(?!.*pip install).*sqlalchemy.dialects"),
    ],
)
def test_no_sqlalchemy(monkeypatch: pytest.MonkeyPatch, module: str, message: str) -> None:
    """If SQLAlchemy or a part of it is missing, SQLStore is an ImportError that says so."""
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message) as caught:
        plantstore.SQLStore  # noqa: B018
    assert isinstance(caught.value.__cause__ or caught.value, ModuleNotFoundError)


def test_sqlalchemy_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQLAlchemy 1.4, a message says which version is needed, and which one the site has."""
    forget(monkeypatch)
    monkeypatch.setattr(sqlalchemy, "__version__", "1.4.54")
    message = "SQLStore needs SQLAlchemy 2.0.23 or later. This site has SQLAlchemy 1.4.54."
    with pytest.raises(ImportError, match=message):
        plantstore.SQLStore  # noqa: B018
    with pytest.raises(ValueError, match=f"is installed, but .* cannot be imported: {message}"):
        plantstore.open_store("sqlite:///plants.db")


DRIVERS = [
    ("sqlalchemy", "sqlite:///plants.db", "sqlite"),
    ("sqlalchemy", "mysql://me:hunter2@host/db", "mysql"),
    *[
        (*driver, f"{scheme}://me:hunter2@host/db", extra)
        for (*driver, extra), schemes in SCHEMES.items()
        for scheme in schemes
    ],
]


@pytest.mark.parametrize(("missing", "url", "extra"), DRIVERS)
def test_missing_driver_message(
    monkeypatch: pytest.MonkeyPatch, missing: str, url: str, extra: str
) -> None:
    """A URL whose driver is missing is refused; the message has the command that installs it."""
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match="missing") as caught:
        open_store(url)
    message = f"the driver for this URL is missing: pip install 'plantstore[{extra}]'"
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


# The source of a broken driver, and the reason in the message.
BROKEN = [
    ("raise ImportError('no library.\\nInstall it:\\n - lib')", "no library. Install it: - lib"),
    ("from {driver} import lacking", "cannot import name 'lacking' from "),
    ("import {driver}.lacking", "No module named '{driver}.lacking'"),
]


@pytest.mark.parametrize(("source", "reason"), BROKEN)
@pytest.mark.parametrize(("driver", "url"), [it[:2] for it in DRIVERS])
def test_broken_driver_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, url: str, source: str, reason: str
) -> None:
    """A driver that is installed but cannot be imported is named, with the reason in one line."""
    (tmp_path / f"{driver}.py").write_text(source.format(driver=driver))
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, driver)
    message = refusal(url)
    assert f"is installed, but {driver} cannot be imported: " in message
    assert reason.format(driver=driver) in message
    assert "pip install" not in message


OTHER = """
from plantstore import MemoryStore as Other
opened = []
def open(url):
    opened.append(url)
    return Other()
"""


def test_store_of_another_package(other: Install) -> None:
    """A URL scheme that is an entry point of a package opens its store. The rest is not public.

    What its function raises is not changed.
    """
    module = other("plantstore-shelf", "shelf", OTHER)
    with open_store("shelf://me:hunter2@host/db") as store:
        store.add(Plant(1, "Rose"))
    assert sys.modules[module].opened == ["shelf://me:hunter2@host/db"]
    assert public_url("shelf://me:hunter2@host/db") == "shelf://…"
    for url in ("shelf", "shelf:", "SHELF://", "foo://me:hunter2@host/db"):
        assert ", shelf://" in refusal(url)
    other("plantstore-broken", "broken", "def open(url): url.shelf")
    with pytest.raises(AttributeError, match="shelf"):
        open_store("broken://")


def test_own_schemes_cannot_be_replaced(other: Install) -> None:
    """An entry point for a scheme of plantstore itself has no effect."""
    for scheme in ("memory", "sqlite"):
        module = other("impostor", scheme, OTHER)
        open_store("memory://" if scheme == "memory" else "sqlite:///plants.db").close()
        assert module not in sys.modules
    assert refusal("foo://").count("memory://") == 1


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("memory://", "memory://"),
        ("sqlite:///plants.db", "sqlite:///FOLDER/plants.db"),
        ("sqlite:////tmp/a b@c%3F.db?mode=rw&timeout=1", "sqlite:////tmp/a b@c%3F.db"),
        ("sqlite:///\udcff.db", "sqlite:///FOLDER/\udcff.db"),
        ("postgresql://me:hunter2@host:5432/db?sslmode=prefer", "postgresql://me@host:5432/db"),
        ("postgres://me:hunter2/?#@[::1]:5432/db", "postgres://me@[::1]:5432/db"),
        ("postgresql+psycopg://me@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql:///db?host=/run&password=hunter2", "postgresql:///db?host=/run"),
        ("postgresql://me:hunter2@/db?host=a,b&port=1,2", "postgresql://me@/db?host=a,b&port=1,2"),
        ("mysql://me:hunter2@host/db?charset=utf8mb4", "mysql://me@host/db"),
        ("mariadb+pymysql://:hunter2@host/db", "mariadb+pymysql://@host/db"),
    ],
)
def test_public_url(url: str, public: str) -> None:
    """The public URL of a store has neither its password nor its options but hosts.

    That of an SQLite file has its folder.
    """
    open_store(url).close()
    assert public_url(url) == public.replace("FOLDER", os.getcwd())


@pytest.mark.parametrize("url", ["sqlite:///plants.db", "memory://", "postgresql://host/db"])
@pytest.mark.parametrize("text", ["{}\n", "{}\r\n", "{} ", " {}", "{}\u2028", "{}\x01", "{}\t?a=b"])
def test_white_space_around_a_url(url: str, text: str) -> None:
    """A URL with white space at an end, or with control characters, is refused in one line."""
    assert "white space" in refusal(text.format(url))
