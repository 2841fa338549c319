"""open_store: missing and broken drivers, and stores of other packages."""

import os
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from plantstore import MemoryStore, Plant, SettingsError, open_store
from plantstore.settings import Settings
from plantstore.stores.urls import public_url
from tests.support.commands import Run
from tests.support.databases import DATABASES, Place, only
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
    for module in (*modules, "plantstore.sql", "plantstore.sql._store", "plantstore.sql.databases"):
        monkeypatch.delitem(sys.modules, module, raising=False)


# The schemes of each database, by its driver and the extra that installs it.
SCHEMES = {
    ("sqlite3", "sqlite"): ["sqlite"],
    ("psycopg", "postgresql"): ["postgresql", "postgres", "postgresql+psycopg"],
    ("pymysql", "mysql"): ["mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"],
}
ALL = [*chain(*SCHEMES.values())]


@only(*DATABASES)
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
    store = open_store("memory://")
    store.add(Plant(1, "Rose"))
    assert isinstance(store, MemoryStore)
    assert len(open_store("memory://")) == 0
    assert refusal("memory://x").endswith("must be exactly memory://")


UNKNOWN = ["", "memory", "memory:", "MEMORY://", "foo://me:hunter2@host/db", "me:hunter2@host"]


@pytest.mark.parametrize("url", UNKNOWN)
def test_unknown_url_is_refused(url: str) -> None:
    """An unknown URL is refused, and the message lists all schemes."""
    listed = refusal(url).partition("one of: ")[2].split(", ")
    assert listed == ["memory://", *[f"{scheme}://" for scheme in ALL]]


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
    ("import lacking", "No module named 'lacking'"),
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


MEMORY = """
from plantstore import MemoryStore
class Other(MemoryStore):
    one_process = False
opened = []
def open(url):
    opened.append(url)
    return Other()
"""


def test_store_of_another_package(other: Install) -> None:
    """A URL scheme that is an entry point of a package opens its store. The rest is not public."""
    module = other("plantstore-shelf", "shelf", MEMORY)
    with open_store("shelf://me:hunter2@host/db") as store:
        store.add(Plant(1, "Rose"))
    assert sys.modules[module].opened == ["shelf://me:hunter2@host/db"]
    assert public_url("shelf://me:hunter2@host/db") == "shelf://…"
    assert "shelf://" in refusal("foo://me:hunter2@host/db")
    for url in ("shelf", "shelf:", "SHELF://", "shelf+x://"):
        assert "it must begin with one of: memory://" in refusal(url)


def test_own_schemes_cannot_be_replaced(other: Install) -> None:
    """An entry point for a scheme of plantstore itself has no effect."""
    for scheme in ("memory", "sqlite"):
        module = other("impostor", scheme, MEMORY)
        open_store("memory://" if scheme == "memory" else "sqlite:///plants.db").close()
        assert module not in sys.modules
    assert refusal("foo://").count("memory://") == 1


@pytest.mark.parametrize(
    ("source", "error"),
    [("import lacking", ModuleNotFoundError), ("def open(url): url.shelf", AttributeError)],
)
def test_fault_of_a_package_has_its_traceback(
    other: Install, source: str, error: type[Exception]
) -> None:
    """An error of a package that has another store is not replaced: its traceback says where."""
    other("plantstore-shelf", "shelf", source)
    with pytest.raises(error, match="lacking|shelf"):
        open_store("shelf://plants")


FAILING = """
from plantstore import MemoryStore, Plant, StoreUnavailable
class Failing(MemoryStore):
    one_process = False
    def add(self, plant):
        if plant.id > 1200:
            raise StoreUnavailable("down")
        super().add(plant)
open = lambda url: Failing()
"""
DOWN = "import plantstore\ndef open(url): raise plantstore.StoreUnavailable('down')"
COMMANDS = [
    (DOWN, "export", 1, "the store cannot be used: down"),
    (MEMORY.replace("False", "True"), "export", 2, "only the service has these plants"),
    (FAILING, "import -", 1, "the store cannot be used: down"),
]


@pytest.mark.parametrize(("source", "command", "code", "message"), COMMANDS)
def test_command_with_a_store_of_another_package(
    other: Install, run: Run, source: str, command: str, code: int, message: str
) -> None:
    """If a command cannot use the store of another package, one line says why."""
    other("plantstore-shelf", "shelf", source)
    lines = b"".join(b'{"id":%d,"name":"x"}\n' % id for id in range(1, 1501))
    result = run(*command.split(), "--store", "shelf://me:hunter2@host", input=lines)
    added = "1000 added, 0 already there, 0 different\n" if source == FAILING else ""
    assert (result.exit_code, result.stdout) == (code, added)
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")
    assert "hunter2" not in result.stderr


def test_with_block_closes_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a with block the store is closed, also after an exception."""
    closed: list[MemoryStore] = []
    monkeypatch.setattr(MemoryStore, "close", lambda store: closed.append(store))
    with MemoryStore() as store:
        assert not closed
    with pytest.raises(KeyError), store:
        raise KeyError
    assert closed == [store, store]


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("sqlite:///plants.db", "sqlite:///FOLDER/plants.db"),
        ("sqlite:////tmp/a b@c%3F.db?mode=rw&timeout=1", "sqlite:////tmp/a b@c%3F.db"),
        ("sqlite:///\udcff.db", "sqlite:///FOLDER/\udcff.db"),
        ("postgresql://me:hunter2@host:5432/db?sslmode=prefer", "postgresql://me@host:5432/db"),
        ("postgres://me:hunter2/?#@[::1]:5432/db", "postgres://me@[::1]:5432/db"),
        ("postgresql+psycopg://me@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql:///db?host=/run&password=hunter2", "postgresql:///db?host=/run"),
        (
            "postgresql://me:hunter2@/db?host=a:1&host=b:2&sslmode=prefer",
            "postgresql://me@/db?host=a:1&host=b:2",
        ),
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


def test_public_url_of_the_memory_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public URL of the memory needs no driver."""
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert public_url("memory://") == "memory://"


@pytest.mark.parametrize("url", ["sqlite:///plants.db", "memory://", "postgresql://host/db"])
@pytest.mark.parametrize("text", ["{}\n", "{}\r\n", "{} ", " {}", "{}\u2028", "{}\x01", "{}\t?a=b"])
def test_white_space_around_a_url(url: str, text: str, run: Run) -> None:
    """A URL with white space at an end, or with control characters, is refused in one line."""
    wrong = text.format(url)
    message = refusal(wrong)
    assert "white space" in message
    with pytest.raises(SettingsError, match="^PLANTSTORE_STORE: ") as caught:
        Settings({"PLANTSTORE_STORE": wrong}).open_store()
    assert str(caught.value).endswith(message)
    for command in (["export"], ["import", "-"], ["backup", "copy.db"]):
        result = run(*command, "--store", wrong)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in " ".join(result.stderr.split())
    assert not [*Path().glob("*.db*")]
