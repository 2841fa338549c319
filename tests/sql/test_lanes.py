"""The threads of a store: adds that wait are committed together."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import event

from plantstore import Plant, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import Limits, deadline
from tests.support.serving import LIMIT
from tests.support.sql import add_in_one_group, open_sql, own_connections
from tests.support.waiting import wait_until

# The plant of the add that commits while the group waits.
FIRST = Plant(0, "first")
GROUP = [Plant(id, f"plant {id}") for id in range(1, 6)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a new SQLite file."""
    return tmp_path / "plants.db"


@pytest.fixture(params=["truncate", "wal"])
def store(request: pytest.FixtureRequest, file: Path) -> Iterator[SQLStore]:
    """Return an empty store in each journal mode."""
    store = open_sql(f"sqlite:///{file}?journal_mode={request.param}")
    store.add_all([])
    yield store
    store.close()


def add_together(store: SQLStore, file: Path, plants: list[Plant]) -> list[BaseException | None]:
    """Add plants in one group, in this order; return the exception of each add, or None."""
    return call_together(store, file, [partial(store.add, plant) for plant in plants])


def call_together(
    store: SQLStore, file: Path, adds: Sequence[Callable[[], None]]
) -> list[BaseException | None]:
    """Call functions that add plants in one group; return the exception of each, or None."""
    waiting: list[Future[None]] = []
    # The first add waits for this lock, and the others for the first.
    with ThreadPoolExecutor(len(adds) + 1) as threads, locked(file):
        for add in [lambda: store.add(FIRST), *adds]:
            waiting.append(threads.submit(add))
            wait_until(lambda: waits(store, len(waiting)) or waiting[-1].done())
    return [add.exception(LIMIT) for add in waiting[1:]]


def waits(store: SQLStore, adds: int) -> bool:
    """Return whether one add is in progress, and the others wait for it."""
    lanes = own_connections(store)._writing  # noqa: SLF001
    in_progress = sum(len(lane.jobs) for lane in lanes._lanes)  # noqa: SLF001
    return (in_progress, len(lanes._queue)) == (1, adds - 1)  # noqa: SLF001


class locked:  # noqa: N801
    """Locks an SQLite file against writers for the duration of a block."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *exc: object) -> None:
        self._connection.close()


def execute(file: Path, statement: str) -> None:
    """Execute a statement by another connection."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(statement)


def listen(store: SQLStore, name: str, listener: Callable[..., Any]) -> None:
    """Listen to an event of the store's engine, also on the connections that it opens later."""
    store.close()
    event.listen(own_connections(store).engine, name, listener)


def check_still_works(store: SQLStore, file: Path) -> None:
    """Check that the store can add plants, and that no connection still locks the file."""
    store.add(Plant(1000, "afterwards"))
    execute(file, "DELETE FROM plants WHERE id = 1000")


def test_waiting_adds_are_one_transaction(store: SQLStore, file: Path) -> None:
    """Adds that wait while another add commits are committed by one transaction."""
    statements: list[str] = []
    listen(store, "connect", lambda it, _: it.set_trace_callback(statements.append))
    assert add_together(store, file, GROUP) == [None] * 5
    assert list(store) == [FIRST, *GROUP]
    inserts = [
        statement.count("(") - 1 for statement in statements if statement.startswith("INSERT")
    ]
    assert inserts == [1, 5]
    assert [
        statement for statement in statements if statement in {"BEGIN IMMEDIATE", "COMMIT"}
    ] == [
        "BEGIN IMMEDIATE",
        "COMMIT",
    ]


def test_group_is_inserted_in_the_order_of_its_ids(store: SQLStore, file: Path) -> None:
    """Adds that are committed together are in the order of their ids, so no groups can deadlock."""
    parameters: list[Any] = []
    listen(store, "before_cursor_execute", lambda *arguments: parameters.append(arguments[3]))
    assert add_together(store, file, GROUP[::-1]) == [None] * 5
    assert (1, 2, 3, 4, 5) in [values[:: len(Plant._fields)] for values in parameters]


def test_removal_is_not_postponed_by_adds(store: SQLStore, file: Path) -> None:
    """A removal is executed before the adds that came after it, however many they are."""
    statements: list[str] = []
    listen(store, "connect", lambda it, _: it.set_trace_callback(statements.append))
    adds = [partial(store.add, plant) for plant in GROUP]
    operations = [*adds[:2], partial(store.remove, FIRST.id), *adds[2:]]
    assert call_together(store, file, operations) == [None] * 6
    assert list(store) == GROUP
    changes = [
        statement.split()[0]
        for statement in statements
        if statement.startswith(("INSERT", "DELETE"))
    ]
    assert changes == ["INSERT", "INSERT", "DELETE", "INSERT"]


def test_group_has_at_most_a_hundred_plants(store: SQLStore, file: Path) -> None:
    """At most a hundred adds are committed together, so no transaction becomes too long."""
    statements: list[str] = []
    listen(store, "connect", lambda it, _: it.set_trace_callback(statements.append))
    many = [Plant(id, "") for id in range(1, 103)]
    assert add_together(store, file, many) == [None] * 102
    assert list(store) == [FIRST, *many]
    assert [
        statement.count("(") - 1 for statement in statements if statement.startswith("INSERT")
    ] == [1, 100, 2]


def test_group_of_large_plants(store: SQLStore, file: Path) -> None:
    """Adds of large plants are committed in smaller groups, so no statement becomes too large."""
    statements: list[str] = []
    listen(store, "connect", lambda it, _: it.set_trace_callback(statements.append))
    large = [plant._replace(name="x" * 100_000) for plant in GROUP]
    assert add_together(store, file, large) == [None] * 5
    assert list(store) == [FIRST, *large]
    inserts = [
        statement.count("(") - 1 for statement in statements if statement.startswith("INSERT")
    ]
    assert inserts == [1, 2, 2, 1]


def test_duplicate_in_a_group_refuses_only_itself(store: SQLStore, file: Path) -> None:
    """Of adds that are committed together, only a duplicate is refused."""
    again = [GROUP[0]._replace(name="again"), FIRST]
    outcomes = add_together(store, file, [GROUP[0], *again, *GROUP[1:]])
    assert [repr(outcome) for outcome in outcomes] == [
        "None",
        "PlantExists(1)",
        "PlantExists(0)",
        *["None"] * 4,
    ]
    assert list(store) == [FIRST, *GROUP]


REFUSALS = {
    "unique": "CREATE UNIQUE INDEX names ON plants (name)",
    **{
        action: "CREATE TRIGGER refuse BEFORE INSERT ON plants WHEN NEW.name = 'first'"
        f" AND NEW.id > 0 BEGIN SELECT RAISE({action}); END"
        for action in ("ROLLBACK, 'no'", "ABORT, 'no'", "FAIL, 'no'", "IGNORE")
    },
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_refused_plant_in_a_group_refuses_only_itself(
    store: SQLStore, file: Path, refusal: str
) -> None:
    """Of adds that are committed together, only the plant that a site refuses is refused."""
    execute(file, refusal)
    refused = GROUP[2]._replace(name="first")
    outcomes = add_together(store, file, [*GROUP[:2], refused, *GROUP[3:]])
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreMisconfigured]
    assert isinstance(outcomes[2], StoreMisconfigured)
    assert list(store) == [FIRST, *GROUP[:2], *GROUP[3:]]


def test_refused_group_is_repeated_one_by_one(store: SQLStore, file: Path) -> None:
    """After a group was refused, each of its adds is executed alone, also if other adds wait."""
    execute(file, REFUSALS["ABORT, 'no'"])
    refused = GROUP[2]._replace(name="first")
    inserts, later = list[int](), iter(GROUP[3:])
    with ThreadPoolExecutor(2) as threads:

        def note(*arguments: Any) -> None:
            statement = arguments[2]
            if statement.startswith("INSERT"):
                inserts.append(statement.count("(") - 1)
                if len(inserts) in {2, 4}:  # While the group, and then another add, is executed.
                    waiting = len(queue)
                    threads.submit(store.add, next(later))
                    wait_until(lambda: len(queue) > waiting)

        listen(store, "before_cursor_execute", note)
        queue = own_connections(store)._writing._queue  # noqa: SLF001
        outcomes = add_together(store, file, [*GROUP[:2], refused])
    assert [type(error) for error in outcomes] == [type(None), type(None), StoreMisconfigured]
    # What was refused was tried again without the ids that exist.
    assert inserts == [1, 3, 3, *[1] * 6]


def test_full_disk_in_a_group(store: SQLStore, file: Path) -> None:
    """A full disk refuses the plants of a group that do not fit; all the others are stored."""
    listen(store, "connect", lambda it, _: it.execute("PRAGMA max_page_count = 20").close())
    large = GROUP[2]._replace(name="x" * 1_000_000)
    outcomes = add_together(store, file, [*GROUP[:2], large, *GROUP[3:]])
    assert isinstance(outcomes[2], StoreUnavailable)
    assert all(outcome is None or isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    acknowledged = [
        plant for plant, outcome in zip(GROUP, outcomes, strict=True) if outcome is None
    ]
    assert acknowledged
    assert list(store) == [FIRST, *acknowledged]
    check_still_works(store, file)


class FailingCommit(sqlite3.Connection):
    """A connection whose commits succeed, and then fail."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        cursor = super().execute(statement, *arguments)
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def test_unknown_outcome_of_a_commit(store: SQLStore, file: Path) -> None:
    """If a commit fails in a way that may have stored the plants, no add of the group succeeds.

    No add is repeated either: its own plant would then be taken for a duplicate.
    """
    kinds = iter([FailingCommit])

    def connect(_dialect: object, _record: object, arguments: Any, options: Any) -> Any:
        kind = next(kinds, sqlite3.Connection)
        return sqlite3.connect(*arguments, factory=kind, **options)

    listen(store, "do_connect", connect)
    outcomes = add_together(store, file, GROUP)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert all("not known whether the commit has failed" in str(outcome) for outcome in outcomes)
    event.remove(own_connections(store).engine, "do_connect", connect)
    store.close()
    check_still_works(store, file)


def test_unexpected_exception_after_a_commit(
    store: SQLStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unexpected exception, no add of a group is repeated: it may have been committed."""
    database = own_connections(store).database
    checks = count()

    def check(_: object) -> None:
        if next(checks) == 1:  # The check after the group, which follows the first add.
            raise KeyError

    monkeypatch.setattr(database, "check_commits", check)
    outcomes = add_together(store, file, GROUP)
    monkeypatch.undo()
    assert {type(outcome) for outcome in outcomes} == {KeyError}
    check_still_works(store, file)


def test_adds_wait_for_a_locked_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a file is locked, adds wait for it until their deadline, and are not refused."""
    monkeypatch.setattr(Limits, "silence", 0.0)
    with open_sql(f"sqlite:///{file}") as store:
        store.add_all([])
        assert add_together(store, file, GROUP) == [None] * 5


def test_group_on_a_file_that_stays_locked(file: Path) -> None:
    """If a file stays locked, all adds of a group fail at once: each alone would wait again."""
    with open_sql(f"sqlite:///{file}?timeout=0") as store:
        store.add_all([])
        with locked(file):
            errors = add_in_one_group(store, GROUP)
        assert {type(error) for error in errors} == {StoreUnavailable}


def test_deadline_in_the_queue(store: SQLStore, file: Path) -> None:
    """An add whose deadline passes while it waits for other adds is not executed later."""

    def add_late() -> None:
        with deadline(0.1):
            store.add(GROUP[1])

    with ThreadPoolExecutor(3) as threads, locked(file):
        first = threads.submit(store.add, GROUP[0])
        wait_until(lambda: waits(store, 1))
        late = threads.submit(add_late)
        with pytest.raises(StoreUnavailable, match="not responded in time"):
            late.result(LIMIT)
        in_time = threads.submit(store.add, GROUP[2])  # In one group with the late one.
        wait_until(lambda: waits(store, 3))
    first.result(LIMIT)
    in_time.result(LIMIT)
    assert list(store) == [GROUP[0], GROUP[2]]


ONE_WINNER = [Plant(7, f"of client {number}") for number in range(8)]


def test_one_winner_in_a_group(store: SQLStore, file: Path) -> None:
    """Of several adds of one id that are committed together, one succeeds: the first."""
    outcomes = add_together(store, file, ONE_WINNER)
    assert [repr(outcome) for outcome in outcomes] == ["None", *["PlantExists(7)"] * 7]
    assert list(store) == [FIRST, ONE_WINNER[0]]


def test_close_while_adds_wait(store: SQLStore, file: Path) -> None:
    """Adds that wait while their store is closed succeed, also those into two tables."""
    other = SQLStore(own_connections(store).engine, table="garden_plants")
    other.add_all([])
    adds = [partial(store.add, GROUP[0]), partial(other.add, GROUP[1])]
    assert call_together(store, file, [*adds, store.close]) == [None] * 3
    assert (list(store), list(other)) == ([FIRST, GROUP[0]], [GROUP[1]])


def test_close_while_threads_use_the_store(tmp_path: Path) -> None:
    """Operations succeed while another thread closes the idle connections again and again."""
    is_over = Event()

    def add_until_the_end(first: int) -> int:
        for id in count(first):
            if is_over.is_set():
                return id - first
            used.add(Plant(id, "Rose"))
        raise AssertionError

    with (
        open_sql(f"sqlite:///{tmp_path}/plants.db") as used,
        ThreadPoolExecutor(4) as threads,
    ):
        adding = [threads.submit(add_until_the_end, 10**6 * client) for client in range(4)]
        for _ in range(100):
            used.close()
        is_over.set()
        added = sum(client.result() for client in adding)
        assert len(used) == added
