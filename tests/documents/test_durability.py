"""docs/durability.md: the statements that prepare a database server."""

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from plantstore import StoreMisconfigured
from tests.support.databases import OpenPlace, Place, mariadb, postgresql
from tests.support.readme import recipe
from tests.support.sites import ROSE_PLANT
from tests.support.sql import open_sql

pytestmark = pytest.mark.database


def execute(place: Place, statements: str) -> None:
    """Execute statements as the superuser of a server."""
    engine = create_engine(place.site_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in filter(str.strip, statements.split(";\n")):
            connection.execute(text(statement))
    engine.dispose()


def shown(url: URL) -> str:
    """Return a URL with its password."""
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("start", [postgresql, mariadb])
def test_statements_that_prepare_a_server(start: OpenPlace) -> None:
    """After the statements of the page, the first plant creates the table.

    In a PostgreSQL database of another owner, this needs the permission that the page names.
    """
    with start() as place:
        execute(place, recipe(f"prepare-{start.__name__}"))
        url = make_url(place.url).set(username="plantstore", password="secret")
        with open_sql(shown(url.set(database="plantstore"))) as store:
            store.add(ROSE_PLANT)
            assert list(store) == [ROSE_PLANT]
        if start is postgresql:
            with open_sql(shown(url)) as store:
                with pytest.raises(StoreMisconfigured, match="permission denied for schema public"):
                    store.add(ROSE_PLANT)
                execute(place, "GRANT CREATE ON SCHEMA public TO plantstore")
                store.add(ROSE_PLANT)
