"""A server that is read-only: /readyz and `plantstore check` say that creates fail."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, make_url, text

from plantstore import SQLStore, StoreUnavailable, create_app
from tests.support.commands import invoke
from tests.support.databases import SERVERS, Place, mariadb, only, postgresql
from tests.support.responses import check_error
from tests.support.serving import free_port
from tests.support.sites import LILY, ROSE_PLANT, TOKEN
from tests.support.sql import execute, make_store, open_sql

SET = {
    "postgresql": "ALTER DATABASE postgres SET default_transaction_read_only = {}",
    "mysql": "SET GLOBAL read_only = {}",
}
REASON = r"read-only.*default_transaction_read_only is on|--read-only"


@contextmanager
def read_only(engine: Engine) -> Iterator[None]:
    """Let a server refuse changes by ordinary users for the duration of the block."""
    statement = SET[engine.dialect.name]
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(statement.format("on")))
        try:
            yield
        finally:
            connection.execute(text(statement.format("off")))


@pytest.fixture
def url(place: Place, engine: Engine) -> Iterator[str]:
    """Return the URL of a store. Its user is subject to the setting read_only of MariaDB."""
    if engine.dialect.name == "postgresql":
        yield place.url
        return
    execute(engine, "CREATE USER gardener_r", "GRANT ALL ON plants.* TO gardener_r")
    yield place.url.replace("root@", "gardener_r@")
    execute(engine, "DROP USER gardener_r")


@only(*SERVERS)
@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_ping_of_a_read_only_server(
    url: str, engine: Engine, opened_by: str, is_empty: bool
) -> None:
    """While a server is read-only, ping, check and /readyz say so, and reads go on."""
    if not is_empty:
        SQLStore(engine).add(ROSE_PLANT)
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": url}
    with make_store(url, opened_by) as store:
        with read_only(engine):
            for use in (store.ping, lambda: store.add(LILY)):
                with pytest.raises(StoreUnavailable, match=f"(?i){REASON}|read-only transaction"):
                    use()
            assert list(store) == ([] if is_empty else [ROSE_PLANT])
            result = invoke("check", env=settings)
            assert result.exit_code == 1
            assert re.search("cannot be used now: .*read-only", result.output)
            check_error(create_app(settings).test_client().get("/readyz"), 50301)
        store.close()
        store.ping()
        store.add(LILY)


@only(mariadb)
def test_user_with_the_right_to_write_to_a_read_only_server(place: Place, engine: Engine) -> None:
    """On a read-only MariaDB, a user with READ_ONLY ADMIN can be used: creates succeed."""
    with read_only(engine), open_sql(place.url) as store:
        store.ping()
        store.add(ROSE_PLANT)


@only(postgresql)
def test_read_only_server_of_several(place: Place, engine: Engine) -> None:
    """Of several servers, one that is read-only is not used until it stores plants."""
    ports = f"{free_port()},{make_url(place.url).port}"
    url = f"postgresql://plants@/postgres?host=127.0.0.1,127.0.0.1&port={ports}"
    with open_sql(url) as store:
        with read_only(engine), pytest.raises(StoreUnavailable, match="read-only"):
            store.add(ROSE_PLANT)
        store.add(ROSE_PLANT)
