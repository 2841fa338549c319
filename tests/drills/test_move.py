"""The plants move to another database while clients go on."""

import shlex
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from plantstore import Plant, open_store
from tests.support.clients import Clients, Record
from tests.support.databases import Place, only, postgresql
from tests.support.fresh import run
from tests.support.readme import recipe
from tests.support.reloading import ANYWHERE, serve
from tests.support.serving import free_port
from tests.support.sites import TOKEN

pytestmark = pytest.mark.drill

MANY = 20_000


def move(folder: Path, url: str) -> None:
    """Run the commands of docs/backup.md."""
    program = shlex.join([sys.executable, "-m", "plantstore"])
    commands = recipe("move").replace(".venv/bin/plantstore", program)
    run(commands, folder, NEW_STORE=url, **ANYWHERE)


@only(postgresql)
def test_move_to_another_database(place: Place, tmp_path: Path, record: Record) -> None:
    """Every acknowledged plant is in the new database; creates fail only in the short stop."""
    old = f"sqlite:///{tmp_path}/plants.db"
    with open_store(old) as store:
        store.add_some(Plant(-id, "Rose") for id in range(1, MANY + 1))
    url = make_url(place.url).render_as_string(hide_password=False)
    port = free_port()
    options = ("--bind", f"127.0.0.1:{port}")
    with Clients(port, number=4, kept=False) as clients:
        with serve(*options, "--store", old, folder=tmp_path, PLANTSTORE_TOKENS=TOKEN):
            clients.wait_for_creations()
            move(tmp_path, url)
            clients.wait_for_creations()
        move(tmp_path, url)
        with serve(*options, "--store", url, folder=tmp_path, PLANTSTORE_TOKENS=TOKEN):
            clients.wait_for_creations()
    with open_store(place.url) as store:
        stored = {plant for plant in store if plant.id >= 0}
        assert len([*store]) == MANY + len(stored)
    record(stored, clients)
