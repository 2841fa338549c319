"""SQL stores under test, concurrent calls, and services on databases."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Barrier, Event, get_ident
from typing import Any, get_type_hints

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text

from plantstore import Plant, SQLStore, open_store
from tests.support.databases import Place
from tests.support.serving import LIMIT
from tests.support.sites import LILY
from tests.support.waiting import wait_until

# The functions of two fixtures: see their docstrings.
Limit = Callable[..., object]
Listen = Callable[[str, Callable[..., Any]], None]
# The columns of the fields that a later version of the package may add.
FURTHER_COLUMNS = [
    f"{name} {'BIGINT' if get_type_hints(Plant)[name] == int | None else 'TEXT'}"
    for name in list[str](Plant._fields)[3:]
]
# The columns of a table of plants, for a statement that creates it.
COLUMNS = ", ".join(["id BIGINT PRIMARY KEY, name TEXT NOT NULL, tag TEXT", *FURTHER_COLUMNS])


def open_sql(url: str) -> SQLStore:
    """Open the SQLStore of a database."""
    store = open_store(url)
    assert isinstance(store, SQLStore)
    return store


def create_table(store: SQLStore) -> None:
    """Let a store create its table. No plant and no connection stays."""
    store.add(LILY)
    store.remove(LILY.id)
    store.close()


# The functions that now listen to an event of all engines, by its name and whether their results
# replace its arguments.
_listeners: dict[tuple[str, bool], list[Callable[..., Any]]] = {}


@contextmanager
def listening(name: str, listener: Callable[..., Any], *, retval: bool = False) -> Iterator[None]:
    """Listen to an event of all engines in the block, as a tracing agent does."""
    if (name, retval) not in _listeners:
        _listeners[name, retval] = []
        # It is never removed from SQLAlchemy, because a lane may be calling the listeners.
        event.listen(Engine, name, _caller(name, retval=retval), retval=retval)
    _listeners[name, retval].append(listener)
    try:
        yield
    finally:
        _listeners[name, retval].remove(listener)


def _caller(name: str, *, retval: bool) -> Callable[..., Any]:
    """Return a listener that calls those that listen to an event now."""

    def call(*arguments: Any) -> Any:
        results = [listener(*arguments) for listener in [*_listeners[name, retval]]]
        # The results of before_cursor_execute replace a statement and its parameters.
        return next(filter(None, results), arguments[2:4] if retval else None)

    return call


@contextmanager
def connecting_slowly(store: SQLStore) -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Let the connections of a store be complete only after the block, so that its jobs wait.

    It provides a function that starts a call, and returns when it waits or has ended.
    """
    store.close()
    release = Event()
    with (
        listening("connect", lambda *_: release.wait(LIMIT)),
        ExitStack() as threads,
        ExitStack() as end,
    ):
        end.callback(release.set)

        def start(call: Callable[[], Any]) -> Future[Any]:
            executor = threads.enter_context(ThreadPoolExecutor(1))
            thread = executor.submit(get_ident).result()
            calling = executor.submit(call)
            wait_until(lambda: calling.done() or is_waiting(thread))
            return calling

        yield start


def is_waiting(thread: int) -> bool:
    """Return whether a thread waits for a job, and not until a thread that it starts has begun."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # The documentation has this name.
    code = None if frame is None else frame.f_code
    return code is not None and code.co_name == "wait" and code.co_filename != threading.__file__


def call_in_one_group(store: SQLStore, *calls: Callable[[], object]) -> list[BaseException | None]:
    """Call functions, whose jobs wait until the last one does; return their exceptions, or None."""
    with connecting_slowly(store) as start:
        calling = [start(call) for call in calls]
    return [call.exception(LIMIT) for call in calling]


def add_in_one_group(store: SQLStore, plants: Sequence[Plant]) -> list[BaseException | None]:
    """Add plants that one lane takes together; return the exception of each add, or None."""
    return call_in_one_group(store, *[partial(store.add, plant) for plant in plants])


@contextmanager
def lock_waits(engine: Engine) -> Iterator[Callable[[], int]]:
    """Provide a function that returns how many lock waits began, or on PostgreSQL still last."""
    query = {
        "postgresql": "SELECT 0, COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "mysql": "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'",
    }[engine.dialect.name]
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:

        def number() -> int:
            return int(connection.execute(text(query)).one()[1])

        before = number()
        yield lambda: number() - before


@contextmanager
def started(*calls: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Start each call in its own thread; the block ends when all have returned."""
    with ThreadPoolExecutor(len(calls)) as threads:
        yield [threads.submit(call) for call in calls]


# A query of all sessions of other clients, and the statement that ends one of them.
SESSIONS = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        "SELECT pg_terminate_backend(:id)",
    ),
    "mysql": (
        "SELECT id FROM information_schema.processlist"
        " WHERE user = 'root' AND id <> CONNECTION_ID()",
        "KILL :id",
    ),
}


def end_sessions(connection: Connection) -> int:
    """End the sessions of other clients by a connection without a transaction; return how many."""
    find, end = SESSIONS[connection.dialect.name]
    sessions = connection.execute(text(find)).scalars().all()
    for id in sessions:
        with suppress(exc.OperationalError):  # MariaDB refuses to end a session that has ended.
            connection.execute(text(end), {"id": id})
    return len(sessions)


def environment(place: Place) -> dict[str, str]:
    """Return the settings of a service that stores its plants in this place."""
    return {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}


@contextmanager
def statements() -> Iterator[list[str]]:
    """Provide the first words of the statements that all stores execute in the block."""
    words = list[str]()
    with listening("before_cursor_execute", lambda *it: words.append(it[2].split()[0])):
        yield words


def ask(query: str, use: Callable[[], object]) -> Any:
    """Execute a query on the connection by which an operation is executed; return its answer."""
    answers = list[Any]()

    def execute_before(connection: Connection, *_: object) -> None:
        if not answers:
            answers.append(None)  # The query itself is executed, too.
            result = connection.exec_driver_sql(query)
            answers[0] = result.scalar() if result.returns_rows else None

    with listening("before_cursor_execute", execute_before), suppress(KeyError):
        use()
    return answers[0]


def call_all(*calls: Callable[[], Any]) -> list[BaseException | None]:
    """Call functions in threads at the same time; return the exception of each, or None."""
    start = Barrier(len(calls))

    def call(function: Callable[[], Any]) -> Any:
        start.wait(LIMIT)
        return function()

    with started(*[partial(call, function) for function in calls]) as calling:
        pass
    return [done.exception() for done in calling]


def check_refused(store: SQLStore, error: type[Exception], match: str, plant: Plant = LILY) -> None:
    """Check that add and add_some of a plant raise exactly this exception; the message matches."""
    for add in (lambda: store.add(plant), lambda: store.add_some([plant])):
        with pytest.raises(error, match=match) as raised:
            add()
        assert raised.type is error


def changed(url: str, **parts: Any) -> str:
    """Return a URL with other parts, such as its port or its username."""
    return make_url(url).set(**parts).render_as_string(hide_password=False)


def with_options(url: str, **options: str) -> str:
    """Return a URL with further options."""
    return make_url(url).update_query_dict(options).render_as_string(hide_password=False)


def make_store(url: str, opened_by: str) -> SQLStore:
    """Return a new store, with an engine of its own or with one of a site."""
    return open_sql(url) if opened_by == "url" else SQLStore(create_engine(url))


# What a trigger can do instead of letting an insert succeed.
TRIGGERS = {
    "sqlite": ("CREATE TRIGGER refuse BEFORE INSERT ON plants BEGIN {action}; END",),
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN {action}; RETURN NEW; END $$"
        " LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "mysql": ("CREATE TRIGGER refuse BEFORE INSERT ON plants FOR EACH ROW BEGIN {action}; END",),
}


def execute(engine: Engine, *statements: str) -> None:
    """Execute statements in one transaction."""
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def create_trigger(engine: Engine, action: str) -> None:
    """Let a trigger execute a statement before each insert."""
    execute(engine, *(part.format(action=action) for part in TRIGGERS[engine.dialect.name]))


def raise_conflicts(engine: Engine, code: str, condition: str) -> None:
    """Let inserts fail with a code if a condition on ``n``, the number of the insert, is true."""
    if engine.dialect.name == "postgresql":
        execute(engine, "CREATE SEQUENCE attempts")
        create_trigger(
            engine,
            f"IF (SELECT {condition} FROM nextval('attempts') AS n)"
            f" THEN RAISE 'conflict' USING ERRCODE = '{code}'; END IF",
        )
    else:
        # In MyISAM, the number stays after a rollback.
        columns = "n INT AUTO_INCREMENT PRIMARY KEY, connection BIGINT"
        execute(engine, f"CREATE TABLE attempts ({columns}) ENGINE=MyISAM")
        create_trigger(
            engine,
            "DECLARE n INT; INSERT INTO attempts (connection) VALUES (CONNECTION_ID());"
            " SET n = LAST_INSERT_ID();"
            f" IF {condition} THEN SIGNAL SQLSTATE '45000'"
            f" SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'conflict'; END IF",
        )
