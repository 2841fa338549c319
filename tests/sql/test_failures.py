"""What the errors of a database mean: 50301, 50303, or a 500 for a fault of ours."""

from typing import Any

import pytest
from sqlalchemy import Engine

from plantstore import Plant, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import OpenPlace, Place, mariadb, only, postgresql, sqlite
from tests.support.responses import check_error, create
from tests.support.sites import ROSE, ROSE_PLANT, make_site
from tests.support.sql import ask, create_table, listening, make_store, open_sql, raise_conflicts

# The codes of errors by their meaning: what ends by itself, or with an outage, and what does not.
CODES: list[tuple[OpenPlace, type[StoreUnavailable], str]] = [
    (postgresql, StoreUnavailable, "08006 25006 25P03 40003 53100 53300 55006 57014 58030"),
    (mariadb, StoreUnavailable, "1021 1053 1114 1156 1180 1203 1290 1317 1412 1969 9001"),
    (postgresql, StoreMisconfigured, "0A000 22001 23514 42501 42703 42P01 54000 55000 P0001"),
    (mariadb, StoreMisconfigured, "1054 1062 1142 1146 1364 1406 1644 4025"),
]


@pytest.mark.parametrize(
    ("place", "meaning", "code"),
    [(place, meaning, code) for place, meaning, codes in CODES for code in codes.split()],
    indirect=["place"],
)
def test_meaning_of_an_error(
    store: SQLStore, engine: Engine, meaning: type[StoreUnavailable], code: str
) -> None:
    """What ends by itself is StoreUnavailable; what fails in the same way is StoreMisconfigured."""
    is_transient = meaning is StoreUnavailable
    raise_conflicts(engine, code, "n < 3" if is_transient else "n > 0")
    for add in (lambda: store.add(ROSE_PLANT), lambda: store.add_some([ROSE_PLANT])):
        with pytest.raises(StoreUnavailable) as caught:
            add()
        assert type(caught.value) is meaning
        assert ("it refuses an operation: " in str(caught.value)) != is_transient
    if is_transient:
        store.add(ROSE_PLANT)


@only(postgresql)
def test_role_without_a_schema_for_its_table(place: Place) -> None:
    """A role that may use no schema of its search_path is StoreMisconfigured."""
    with open_sql(f"{place.url}?options=-c search_path=missing") as store:
        for use in (store.ping, lambda: store.add(ROSE_PLANT)):
            with pytest.raises(StoreMisconfigured, match="schema"):
                use()


@only(sqlite, postgresql, mariadb)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("statement", ["INSRT INTO plants VALUES ({0})", "SELECT {0}"])
def test_fault_is_a_500_with_its_traceback(
    place: Place, opened_by: str, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in a statement of ours is 50001 with its traceback, also if the driver finds it.

    An exception of a listener of all engines, such as that of an agent, stays what it is.
    """

    def make_wrong(_: object, __: object, right: str, parameters: Any, *___: object) -> Any:
        marker = "?" if "?" in right else "%s"
        return statement.format(marker) if right.startswith("INSERT") else right, parameters

    with make_store(place.site_url, opened_by) as store:
        create_table(store)
        client = make_site(store=store).test_client()
        with listening("before_cursor_execute", make_wrong, retval=True):
            check_error(create(client, ROSE), 50001)
        assert "Traceback" in caplog.text
        refuse = listening("before_cursor_execute", lambda *_: {"": ""}["a fault of an agent"])
        with refuse, pytest.raises(KeyError, match="of an agent"):
            store.get(1)
        store.add(ROSE_PLANT)


@only(postgresql)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("change", ["ALTER TABLE plants ALTER name TYPE VARCHAR", "DEALLOCATE ALL"])
def test_prepared_statements_that_are_outdated(place: Place, opened_by: str, change: str) -> None:
    """If a column becomes VARCHAR, or prepared statements are gone, each operation succeeds."""
    # A statement that psycopg does not notice, like those of another client behind a pooler.
    hidden = f"DO $$ BEGIN EXECUTE '{change}'; END $$"
    with make_store(place.url, opened_by) as store:
        for id in range(20):
            store.add(Plant(id, "Rose"))
            store.get(id)
        for use in (lambda: store.get(0), lambda: store.remove(-1)):  # It reads, and it writes.
            ask(hidden, use)
        for id in range(20):
            assert store.get(id) == Plant(id, "Rose")
            store.add(Plant(100 + id, "Lily"))
