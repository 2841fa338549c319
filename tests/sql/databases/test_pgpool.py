"""Pgpool-II, which lets a standby that is late execute queries."""

from collections.abc import Iterator

import pytest

from plantstore import Plant, PlantExists
from tests.support.pgpool import pgpool
from tests.support.replication import Pair, postgresql_pair
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import call_all, create_table, open_sql
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.database, pytest.mark.postgresql]


@pytest.fixture
def url() -> Iterator[str]:
    """Return the URL of Pgpool-II in front of a primary and a standby that applies nothing more."""
    with postgresql_pair() as pair, pgpool(pair) as url:
        with open_sql(pair.url) as store:
            create_table(store)
        wait_until(lambda: has_table(pair))
        delay = "ALTER SYSTEM SET recovery_min_apply_delay = '1h'"
        for statement in (delay, "SELECT pg_reload_conf()"):
            pair.standby.execute(statement)
        wait_until(lambda: pair.standby.execute("SHOW recovery_min_apply_delay") == [("1h",)])
        yield url


def has_table(pair: Pair) -> bool:
    """Return whether the standby has the table."""
    return pair.standby.execute("SELECT to_regclass('plants') IS NOT NULL") == [(True,)]


def test_duplicates_with_a_late_standby(url: str) -> None:
    """A duplicate is one although a standby, which does not have it yet, executes all queries."""
    with open_sql(url) as store:
        store.add(ROSE_PLANT)
        assert store.get(ROSE_PLANT.id) is None  # The standby has answered.
        store.ping()  # Plants can be added.
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        assert store.add_some([ROSE_PLANT, LILY]) == {1}
        assert store.add_some([LILY, Plant(3, "Fern")]) == {2}
        adds = [lambda id=id: store.add(Plant(id // 2, "")) for id in range(20, 60)]
        errors = [type(error) for error in call_all(*adds)]
        assert (errors.count(type(None)), errors.count(PlantExists)) == (20, 20)
