"""Rows that another program has written, and that are not plants."""

import json
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import Plant, SQLStore, StoreMisconfigured
from tests.support.databases import Place, only, postgresql
from tests.support.responses import ALL, check_error, get
from tests.support.sites import BEARER, make_site
from tests.support.sql import COLUMNS, changed, execute, open_sql

# The id, the name and the tag of a row of SQLite, and what is wrong with it.
NAMES = {
    "name not UTF-8": ("CAST(x'ff' AS TEXT), NULL", "a text is not UTF-8"),
    "two BLOBs": ("x'00', x'61'", "name: Must be a string, not bytes. tag: Must be a string"),
}
IDS = {
    "NULL": "plants: a row is not a plant: id: Must be an integer, not NoneType.",
    "'seven'": "the row with the id 'seven' is not a plant",
    "CAST(x'ff' AS TEXT)": "plants: a row is not a plant: a text is not UTF-8",
}


def insert(file: Path, *rows: str) -> None:
    """Add rows to an SQLite file as another program does."""
    with closing(connect(file)) as other:
        other.execute(f"CREATE TABLE IF NOT EXISTS plants ({COLUMNS})")
        for row in rows:
            other.execute(f"INSERT INTO plants (id, name, tag) VALUES ({row})")
        other.commit()


@pytest.mark.parametrize(("row", "fault"), NAMES.values(), ids=NAMES)
def test_row_with_a_wrong_text(
    tmp_path: Path, file_engine: Engine, caplog: pytest.LogCaptureFixture, row: str, fault: str
) -> None:
    """To read a row that is not a plant is 50303, and the log names its id. It can be replaced."""
    insert(tmp_path / "plants.db", "3, 'Lily', NULL", f"7, {row}", "8, 'Tulip', NULL")
    client = make_site(store=SQLStore(file_engine), operations=ALL).test_client()
    for path in ("/plants/7", "/plants", "/plants?after=3", "/plants?limit=2"):
        caplog.clear()
        check_error(get(client, path), 50303)
        (line,) = caplog.messages
        assert f": table plants: the row with the id 7 is not a plant: {fault}" in line
    assert get(client, "/plants/3").json == {"name": "Lily"}
    assert get(client, "/plants?after=7").json == [{"id": 8, "name": "Tulip"}]
    replaced = client.put("/plants/7", json={"name": "Rose"}, headers=BEARER)
    assert replaced.status_code == 200
    assert [plant["id"] for plant in json.loads(get(client, "/plants").data)] == [3, 7, 8]


@pytest.mark.parametrize(("id", "problem"), IDS.items(), ids=IDS)
def test_row_with_a_wrong_id(url: str, tmp_path: Path, id: str, problem: str) -> None:
    """A row whose id is not an integer is not a plant either."""
    insert(tmp_path / "plants.db", "3, 'Lily', NULL", f"{id}, 'Rose', NULL")
    with open_sql(url) as store, pytest.raises(StoreMisconfigured, match=problem):
        list(store)
    with open_sql(url) as store:
        store.add(Plant(4, "Tulip"))
        assert store.get(3) == Plant(3, "Lily")


@only(postgresql)
def test_text_of_postgresql_that_is_not_utf_8(place: Place, engine: Engine) -> None:
    """In a database of PostgreSQL with any bytes, a text that is not UTF-8 is not a plant."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(
            "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
        )
    url = changed(place.url, database="bytes")
    with open_sql(url) as store:
        store.add_some([Plant(3, "Lily"), Plant(7, "Rose")])
        other = create_engine(url, connect_args={"client_encoding": "utf8"})
        execute(other, r"UPDATE plants SET name = E'\xff' WHERE id = 7")
        other.dispose()
        for read in (lambda: store.get(7), lambda: store.get_some([3, 7]), lambda: list(store)):
            with pytest.raises(StoreMisconfigured, match="the id 7 is not a plant: a text is not"):
                read()
