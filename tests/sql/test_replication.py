"""Commits of PostgreSQL that wait for a standby, with a server that waits for a missing one."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import Place, only, postgresql
from tests.support.replication import MOST, WAITING
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import call_all, check_refused, make_store, started
from tests.support.waiting import wait_until

pytestmark = only(postgresql)
FERN = Plant(3, "Fern")


class Administrator:
    """Another client of the server, which waits for no standby."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def execute(self, *statements: str, commit: str = "local") -> Any:
        """Execute statements, and return the first value of the last one."""
        with self._engine.connect() as connection:
            for statement in (f"SET synchronous_commit = {commit}", *statements):
                result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    @contextmanager
    def missing_standby(self) -> Iterator[None]:
        """Let each commit wait for a standby that does not exist."""
        names, reload = "ALTER SYSTEM {} synchronous_standby_names {}", "SELECT pg_reload_conf()"
        self.execute(names.format("SET", "= 'missing'"), reload)
        try:
            wait_until(self._commits_wait)
            yield
        finally:
            self.execute(names.format("RESET", ""), reload)

    def _commits_wait(self) -> bool:
        """Return whether a commit waits. A process of the server must first read the setting."""
        comment = "COMMENT ON SCHEMA public IS 'plants'"
        with started(lambda: self.execute(comment, commit="on")) as (commit,):
            wait_until(lambda: commit.done() or self.waiting() == 1)
            if commit.done():
                return False
            self.cancel()
            return True

    def waiting(self) -> int:
        """Return how many commits wait for the standby."""
        number: int = self.execute(f"SELECT count(*) {WAITING}")
        return number

    def cancel(self) -> None:
        """Cancel the only commit that waits for the standby."""
        wait_until(lambda: self.waiting() == 1)
        self.execute(f"SELECT pg_cancel_backend(pid) {WAITING}")


@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_cancelled_wait_for_the_standby(place: Place, engine: Engine, opened_by: str) -> None:
    """A change that the server has not replicated, as it should, is not acknowledged."""
    admin = Administrator(engine)
    with make_store(place.url, opened_by) as store:
        store.add_some([LILY, FERN])
        changes = [
            lambda: store.add(ROSE_PLANT),
            lambda: store.add_some([Plant(4, "")]),
            lambda: store.replace(LILY),
            lambda: store.remove(FERN.id),
        ]
        with admin.missing_standby():
            for change in changes:
                with started(change) as (changing,):
                    admin.cancel()
                    with pytest.raises(StoreUnavailable, match="for a standby was cancelled"):
                        changing.result()
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        store.add(FERN)


def test_hidden_warnings(engine: Engine) -> None:
    """If commits wait for a standby, a session that hides a cancelled wait is refused."""
    quiet = create_engine(engine.url, connect_args={"options": "-c client_min_messages=error"})
    SQLStore(quiet).add(ROSE_PLANT)
    with Administrator(engine).missing_standby():
        check_refused(SQLStore(quiet), StoreMisconfigured, "client_min_messages must not be error")
    quiet.dispose()


def test_adds_that_wait_for_the_standby(store: SQLStore, engine: Engine) -> None:
    """While no standby responds, at most twelve adds wait for it, and reads go on.

    Most of the other adds are refused at once: that clients can connect is no response.
    """
    admin, ids, reasons = Administrator(engine), count(100), Counter[str]()

    def add() -> None:
        with deadline(0.3):
            store.add(Plant(next(ids), ""))

    def add_in_vain() -> int:
        errors = call_all(*[add] * 20)
        assert {type(error) for error in errors} == {StoreUnavailable}
        reasons.update(map(str, errors))
        return admin.waiting()

    store.add(LILY)
    with admin.missing_standby():
        wait_until(lambda: add_in_vain() == MOST)
        reasons.clear()
        for _ in range(5):
            assert add_in_vain() == MOST
            assert store.get(LILY.id) == LILY
    assert reasons["the database does not respond"] > 50
    wait_until(lambda: call_all(add) == [None])
    assert call_all(*[partial(store.add, Plant(id, "")) for id in range(10, 26)]) == [None] * 16
