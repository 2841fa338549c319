"""The commands and the examples of the pages for operators."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from plantstore import Plant, Store, StoreMisconfigured, open_store
from plantstore.tokens.lines import read_tokens
from tests.support.databases import PATH, Place, mariadb, only, postgresql, postgresql_programs
from tests.support.fresh import run
from tests.support.log import LINE
from tests.support.readme import recipe
from tests.support.serving import ROOT, Connection, Gunicorn, free_port, post
from tests.support.sites import ROSE_PLANT, TOKEN, new_rose
from tests.support.waiting import program

# A plant with a character outside of the Basic Multilingual Plane, as a test of the programs.
PLANTS = [Plant(-1, "🌵\n\\'\t"), Plant(2, "Lily", "white")]


def commands(name: str) -> str:
    """Return the commands of a block, for this environment."""
    python = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "plantstore"])
    commands = recipe(name).replace(".venv/bin/plantstore", python)
    return commands.replace("2027-01-31", "9999-01-31")


def test_commands_that_replace_a_token(tmp_path: Path) -> None:
    """The commands of docs/tokens.md append a token, replace it, and make one that may read."""
    shown = run(f"exec 2>&1; {commands('append')}", tmp_path)
    assert re.search("^plt_[0-9A-Za-z_-]{43}$", shown, re.M)
    assert "`plt_[0-9A-Za-z_-]{43}`" in (ROOT / "docs" / "tokens.md").read_text()
    (tokens,) = read_tokens((tmp_path / "tokens.txt").read_text())
    assert (tokens.client, str(tokens.expires)) == ("kiosk", "9999-01-31 00:00:00+00:00")
    run(commands("rotate"), tmp_path)
    assert len(read_tokens((tmp_path / "tokens.txt").read_text())) == 2
    run(commands("revoke") + commands("reader"), tmp_path)
    other, reader = read_tokens((tmp_path / "tokens.txt").read_text())
    assert (other.client, other.operations) == ("kiosk-2", None)
    assert (reader.client, reader.operations) == ("reader", ("read",))


@pytest.mark.server
def test_log_of_new_plants(url: str) -> None:
    """With the line of docs/tokens.md, the log has the id and the client of each new plant."""
    (options,) = shlex.split(recipe("names").partition("=")[2])
    with Gunicorn(*options.split(), PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=url) as server:
        assert server.request(post(new_rose())).status == 200
        server.wait_for(r"Plant \d+ was added \(client: 'token-1', address: '127.0.0.1', ")


def test_examples_of_files() -> None:
    """The examples of a file of tokens and of a line of the log have their formats."""
    clients = [(token.client, token.operations) for token in read_tokens(recipe("file"))]
    other = ("Flora of the greenhouse", None)
    assert clients == [("kiosk", None), other, ("shop", ("read", "list"))]
    assert LINE.fullmatch(recipe("log-line").rstrip("\n"))


def test_commands_for_plants(tmp_path: Path) -> None:
    """The commands move plants into files and back, and to another store."""
    *counts, last = run(commands("command-line"), tmp_path).splitlines()
    assert counts == [f"{n} added, {1 - n} already there, 0 different" for n in (1, 0)]
    assert last == '{"id":1,"name":"Monstera","tag":"indoor"}'
    stores = "OLD_STORE=sqlite:///plants.db NEW_STORE=sqlite:///new.db"
    said = run(f"{stores}\n{commands('pipe')}", tmp_path)
    assert said == "1 added, 0 already there, 0 different\n"
    for id in (2, 3):  # The second move has what clients have added since the first one.
        with open_store(f"sqlite:///{tmp_path}/plants.db") as store:
            store.add(Plant(id, "Rose"))
        run(f"NEW_STORE=sqlite:///newer.db\n{commands('move')}", tmp_path)
    with open_store(f"sqlite:///{tmp_path}/newer.db") as store:
        assert list(store) == [Plant(1, "Monstera", "indoor"), Plant(2, "Rose"), Plant(3, "Rose")]


def fill(store: Store) -> None:
    """Add PLANTS."""
    for plant in PLANTS:
        store.add(plant)


def change(store: Store) -> None:
    """Remove a plant, and add another one."""
    store.remove(2)
    store.add(Plant(3, "Oak"))


def test_back_up_and_restore_sqlite(tmp_path: Path) -> None:
    """The commands back up an SQLite file that is in use, and restore it beside an old log."""
    with open_store(f"sqlite:///{tmp_path}/plants.db?journal_mode=wal") as store:
        fill(store)
        run(commands("backup-sqlite"), tmp_path)
        change(store)
        log = (tmp_path / "plants.db-wal").read_bytes()
    (tmp_path / "plants.db-wal").write_bytes(log)
    (tmp_path / "plants.db").write_text("broken")
    assert run(commands("restore-sqlite"), tmp_path) == "2\n"
    with open_store(f"sqlite:///{tmp_path}/plants.db") as store:
        assert list(store) == PLANTS


@only(postgresql, mariadb)
def test_back_up_and_restore_a_server(place: Place, tmp_path: Path) -> None:
    """The commands back up a table of a database server that is in use, and restore it."""
    url = make_url(place.url)
    if url.drivername.startswith("postgresql"):
        kind, variables = "postgresql", f"PATH={postgresql_programs()}{os.pathsep}{PATH}"
        variables += f" PGHOST={url.host} PGPORT={url.port} PGUSER={url.username}"
        variables += f" PGDATABASE={url.database}"
    else:
        kind, variables = "mariadb", f"HOME='{tmp_path}'"
        options = f"[client]\nhost={url.host}\nport={url.port}\nuser={url.username}\n"
        (tmp_path / ".my.cnf").write_text(options)
    with open_store(place.url) as store:
        fill(store)
        run(f"export {variables}\n{commands(f'backup-{kind}')}", tmp_path)
        change(store)
    run(f"export {variables}\n{commands(f'restore-{kind}')}", tmp_path)
    with open_store(place.url) as store:
        assert list(store) == PLANTS
        change(store)
    if kind == "mariadb":
        assert "-- Dump completed" in (tmp_path / "plants.sql").read_text().splitlines()[-1]


@only(postgresql)
def test_command_of_a_platform(place: Place, tmp_path: Path) -> None:
    """The command serves plants of DATABASE_URL, also of postgres://, at PORT of all interfaces."""
    url, port = make_url(place.url).set(drivername="postgres"), free_port()
    own = {"DATABASE_URL": f"{url}", "PORT": f"{port}", "PLANTSTORE_TOKENS": TOKEN}
    command = recipe("platform").replace(" plantstore", f" exec {sys.executable} -m plantstore")
    service = program(port, ["sh", "-c", command], cwd=ROOT, env=os.environ | own)
    with service, Connection(port) as client:
        assert client.request(post(new_rose())).status == 200
    with open_store(place.url) as store:
        assert len(store) == 1


@pytest.mark.database
@pytest.mark.parametrize("start", [postgresql, mariadb])
def test_statements_that_prepare_a_server(start: Any) -> None:
    """After the statements of the page, the first plant creates the table."""
    with start() as place:
        engine = create_engine(place.site_url, isolation_level="AUTOCOMMIT")
        with engine.connect() as superuser:
            for statement in recipe(f"prepare-{start.__name__}").split(";\n")[:-1]:
                superuser.execute(text(statement))
        url = make_url(place.url).set(username="plantstore", password="secret")
        other = url.render_as_string(hide_password=False)
        own = url.set(database="plantstore").render_as_string(hide_password=False)
        with open_store(own) as store:
            store.add(ROSE_PLANT)
        if start is postgresql:
            with open_store(other) as store:
                with pytest.raises(StoreMisconfigured, match="permission denied for schema public"):
                    store.add(ROSE_PLANT)
                with engine.connect() as superuser:
                    superuser.execute(text("GRANT CREATE ON SCHEMA public TO plantstore"))
                store.add(ROSE_PLANT)
        engine.dispose()
