"""Silence: no lane has a response, so most jobs are refused at once, and a few open connections."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from functools import partial
from itertools import count
from weakref import WeakSet

import pytest
from sqlalchemy import Engine, text

from plantstore import Plant, SQLStore, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import SERVERS, Place, only
from tests.support.proxy import Proxy
from tests.support.serving import LIMIT
from tests.support.sites import ROSE_PLANT
from tests.support.sql import (
    Limit,
    Listen,
    call_all,
    changed,
    execute,
    open_sql,
    started,
    with_options,
)
from tests.support.waiting import wait_until

pytestmark = only(*SERVERS)

REFUSED = "the database does not respond"
ids = count(10)


@pytest.fixture
def store(gate: Proxy) -> Iterator[SQLStore]:
    """Return a store with an open connection."""
    with open_sql(gate.url) as store:
        store.add(ROSE_PLANT)
        yield store
        gate.forwards.set()


def outcome(operation: Callable[[], object]) -> str:
    """Return the message of an operation's StoreUnavailable, or an empty string."""
    try:
        operation()
    except StoreUnavailable as error:
        return str(error)
    return ""


def add(store: SQLStore, seconds: float = LIMIT) -> str:
    """Add a plant; return why this is not possible, or an empty string."""
    with deadline(seconds):
        return outcome(lambda: store.add(Plant(next(ids), "")))


def test_one_caller_waits_for_a_silent_server(store: SQLStore, gate: Proxy) -> None:
    """While a server is silent, one caller waits until its deadline, the others for two seconds.

    After the first response, all go on.
    """
    gate.forwards.clear()
    began = time.monotonic()

    def add_in_silence() -> float:
        assert add(store)
        return time.monotonic() - began

    with started(*[add_in_silence] * 8) as adding:
        pass
    seconds = sorted(add.result() for add in adding)
    assert 1.5 < seconds[0] <= seconds[6] < 2.8 < seconds[7]
    gate.forwards.set()
    wait_until(lambda: not add(store))
    assert {add(store) for _ in range(20)} == {""}


def test_most_jobs_are_refused_at_once(store: SQLStore, gate: Proxy) -> None:
    """During silence, one job each second opens a connection; most others are refused at once."""
    gate.forwards.clear()
    add(store)
    before, outcomes, end = gate.accepted, Counter[str](), time.monotonic() + 2
    while time.monotonic() < end:
        outcomes[add(store, 0.1)] += 1
        time.sleep(0.01)
    assert "" not in outcomes
    assert outcomes[REFUSED] > outcomes.total() / 2
    assert 1 <= gate.accepted - before <= 3


class Request:
    """A request that a tracing agent keeps in a context."""


_request: ContextVar[Request] = ContextVar("request")


def test_request_is_forgotten_after_silence(store: SQLStore, gate: Proxy, limit: Limit) -> None:
    """After a silence, no request stays in memory, also if it opened a connection."""
    limit(stuck=0.1, probe=0.0)  # Each request is a probe.
    requests = WeakSet[Request]()

    def add_in_request() -> str:
        _request.set(Request())
        requests.add(_request.get())
        return add(store, 0.3)

    gate.forwards.clear()
    assert all(Context().run(add_in_request) for _ in range(5))
    gate.forwards.set()
    wait_until(lambda: gc.collect() >= 0 and not requests)


def test_new_connection_ends_silence(store: SQLStore, gate: Proxy) -> None:
    """If another connection works, the first job that is let through succeeds, and then all do."""
    gate.response_delay = 0.05
    wait_until(lambda: bool(call_all(*[lambda: store.get(1)] * 8)) and len(gate.clients) >= 6)
    gate.response_delay = 0.0
    gate.silence()
    with started(*[lambda: outcome(lambda: store.get(1))] * 2):
        wait_until(lambda: not outcome(lambda: store.get(-1)), 6)
        assert {outcome(lambda: store.get(-1)) for _ in range(50)} == {""}


@contextmanager
def locked(engine: Engine, number: int) -> Iterator[list[Plant]]:
    """Provide plants whose adds wait: another client holds the locks on their ids."""
    plants = [Plant(next(ids), "") for _ in range(number)]
    with engine.connect() as other:
        for plant in plants:
            other.execute(text("INSERT INTO plants (id, name) VALUES (:id, '')"), {"id": plant.id})
        yield plants
        other.rollback()


def test_operation_that_takes_longer_is_no_outage(
    place: Place, store: SQLStore, engine: Engine, limit: Limit
) -> None:
    """While the only operation takes more than two seconds, others succeed, also two at a time."""
    limit(stuck=0.5, probe=0.3)
    with (
        locked(engine, 1) as (plant,),
        open_sql(place.url) as used,
        started(lambda: outcome(lambda: used.add(plant))),
    ):
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 1.5)
        # On a busy machine, it may take some time to connect.
        limit(look=LIMIT / 2)
        assert call_all(*[lambda: used.get(1)] * 4) == [None] * 4
        assert call_all(*[lambda: used.add(Plant(next(ids), ""))] * 4) == [None] * 4


def test_lane_without_a_response_is_replaced(store: SQLStore, engine: Engine) -> None:
    """While all lanes wait for responses, others take their place, also without silence."""
    with (
        locked(engine, 4) as plants,
        started(*[partial(outcome, partial(store.add, plant)) for plant in plants]) as waiting,
    ):
        wait_until(lambda: not add(store))
        assert [add(store) for _ in range(20)] == [""] * 20
        assert not any(it.done() for it in waiting)


def test_lost_connection_is_closed(store: SQLStore, gate: Proxy, limit: Limit) -> None:
    """A connection without a response is closed some time after others have had one."""
    limit(lost=3)
    lost = {*gate.clients}
    gate.silence()
    assert add(store)
    wait_until(lambda: add(store) == "" and not lost & gate.clients)


# A query by which SQLAlchemy learns about a server, after its version.
SECOND_QUERY = {"postgresql": b"select current_schema()", "mysql": b"SELECT DATABASE()"}


@pytest.mark.parametrize("moment", ["after its login", "after a query"])
def test_first_connection_that_hangs(
    gate: Proxy, engine: Engine, listen: Listen, moment: str
) -> None:
    """If only the first connection of a process hangs, operations succeed within seconds."""
    with open_sql(gate.url) as store:
        if moment == "after a query":
            gate.last_request = SECOND_QUERY[engine.dialect.name]
        else:
            hang = iter([gate.silence])
            listen("connect", lambda *_: next(hang, lambda: None)())
        began = time.monotonic()
        assert add(store, 0.2)
        assert not gate.last_request
        wait_until(lambda: not add(store, 0.2))
        assert time.monotonic() - began < 15
        assert store.add_some([Plant(next(ids), "")]) == set()


def test_close_while_an_operation_waits_for_a_silent_server(gate: Proxy) -> None:
    """close() does not wait for a silent server. An operation in progress ends at its deadline."""
    with open_sql(gate.url) as store:
        store.add(ROSE_PLANT)
        gate.last_request = b"INSERT"
        with started(lambda: add(store, LIMIT)) as (adding,):
            wait_until(lambda: not gate.last_request)
            store.close()
            assert not adding.done()
            assert adding.result() == "the database has not responded in time"
        assert not add(store)


# The limit of a user's connections, the rights that it needs, and what removes them.
USER = {
    "postgresql": ("CONNECTION LIMIT", "SCHEMA public", ["DROP OWNED BY few"]),
    "mysql": ("WITH MAX_USER_CONNECTIONS", "plants.*", []),
}


@contextmanager
def limited_user(engine: Engine, connections: int) -> Iterator[None]:
    """Provide the user few, who may have so many connections to the server."""
    limit, rights, remove = USER[engine.dialect.name]
    execute(engine, f"CREATE USER few {limit} {connections}", f"GRANT ALL ON {rights} TO few")
    yield
    execute(engine, *remove, "DROP USER few")


def test_limit_of_connections_of_a_user(place: Place, engine: Engine) -> None:
    """If a user can have few connections, lanes that have one execute the jobs of all.

    A read needs another connection than an add. So it is refused if adds have all of them, and the
    message names the option of the URL that leaves some to each.
    """
    few = changed(place.url, username="few")
    with ThreadPoolExecutor(8) as threads:
        with limited_user(engine, 1), open_sql(few) as store:
            assert {*threads.map(add, [store] * 100)} == {""}
            assert "?connections=" in outcome(lambda: store.get(1))
            assert {*threads.map(add, [store] * 100)} == {""}
        with limited_user(engine, 2), open_sql(f"{few}?connections=2") as store:
            wait_until(lambda: not add(store))  # The server may not have ended the other session.
            for operation in (lambda it: outcome(lambda: it.get(1)), add):
                assert {*threads.map(operation, [store] * 100)} == {""}


def test_number_of_connections_after_an_outage(store: SQLStore, gate: Proxy, limit: Limit) -> None:
    """After an outage, in which it may have twelve connections, a store adds by four again."""
    limit(probe=0.05)
    gate.forwards.clear()
    wait_until(lambda: bool(add(store, 0.1)) and len(gate.clients) > 6)
    gate.forwards.set()
    wait_until(lambda: not add(store) and len(gate.clients) <= 4)


def test_server_that_is_silent_after_an_error(gate: Proxy, engine: Engine, listen: Listen) -> None:
    """A server that responds with an error, and then never again, occupies no connection."""
    with open_sql(with_options(gate.url, connections="2")) as store:  # One of them reads.
        store.add(ROSE_PLANT)
        store.get(1)
        execute(engine, "DROP TABLE plants")
        silence = iter([gate.silence])
        listen("handle_error", lambda _: next(silence, lambda: None)())
        assert "plants" in outcome(lambda: store.get(1))
        assert outcome(lambda: store.get(1)) == ""


def test_silence_with_all_connections_of_a_user(gate: Proxy, engine: Engine, limit: Limit) -> None:
    """If a user can have no more connections, and those that it has are silent, one makes room."""
    limit(stuck=0.2, probe=0.1, lost=1)
    few = changed(gate.url, username="few")
    with limited_user(engine, 1), open_sql(few) as store:
        wait_until(lambda: not add(store))  # On a busy machine, the first attempt may be late.
        gate.silence()
        wait_until(lambda: not add(store, 1))


def test_number_of_connections(gate: Proxy, limit: Limit) -> None:
    """With ?connections=4, a store has at most four connections, also while there is silence."""
    limit(stuck=0.2, probe=0.1, lost=LIMIT)
    opened = []
    with open_sql(with_options(gate.url, connections="4")) as store:

        def use() -> None:
            with deadline(0.3), suppress(StoreUnavailable):
                store.get(1)
                store.add(Plant(next(ids), ""))

        for number in range(20):
            if number % 5 == 4:
                gate.silence()
            assert call_all(*[use] * 16) == [None] * 16
            # The proxy may not have noticed yet that one was closed.
            wait_until(lambda: len(gate.clients) <= 4, LIMIT / 4)
            opened.append(len(gate.clients))
    assert max(opened) >= 2


def test_late_connections_are_used(store: SQLStore, gate: Proxy) -> None:
    """Connections that open late are used later; at most 16 wait while a server is silent."""
    store.close()
    wait_until(lambda: not gate.clients)
    gate.forwards.clear()
    before = gate.accepted
    for _ in range(3):
        with started(*[partial(add, store, 0.3)] * 24) as adding:
            pass
        assert all(it.result() for it in adding)
    gate.forwards.set()
    wait_until(lambda: not outcome(lambda: store.get(-1)))
    assert call_all(*[lambda: store.add(Plant(next(ids), ""))] * 24) == [None] * 24
    assert 1 <= gate.accepted - before <= 16


def test_failed_connections_are_closed(gate: Proxy) -> None:
    """A connection whose opening failed is closed at once, not by the garbage collector."""
    gate.forwards.clear()
    with open_sql(with_options(gate.url, connect_timeout="2")) as store:
        gc.disable()
        try:
            assert add(store)
            wait_until(lambda: not gate.clients)
        finally:
            gc.enable()
        gate.forwards.set()
        assert not add(store)
