"""The table of plants: its definition, and the check that a table is as defined."""

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, MetaData, Table, Text, exc, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn

from ..stores.base import Plant, StoreMisconfigured
from ..text import one_line
from ._columns import make_columns
from .databases import Database, misconfigured


class TableMissing(StoreMisconfigured):
    """The table does not exist. The store may create it, or has no plants."""


def define_table(name: str, metadata: MetaData, engine: Engine) -> Table:
    """Return the table of plants in the metadata. Several stores may use one table.

    :raises ValueError: if the name is empty or too long for the engine, or if the metadata has a
        table of this name that is not a table of plants.
    """
    longest = engine.dialect.max_identifier_length
    if not 0 < len(name.encode()) <= longest or "\0" in name:
        raise ValueError(f"table must be a name of 1 to {longest} bytes")
    existing = metadata.tables.get(f"{metadata.schema}.{name}" if metadata.schema else name)
    if existing is None:
        return Table(
            name,
            metadata,
            *make_columns(),
            info={"plantstore": True},
            implicit_returning=False,
            sqlite_with_rowid=False,  # One B-tree, with the id as its key, instead of two.
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
    if not existing.info.get("plantstore"):
        raise ValueError(
            f"metadata already has a table {name}, which plantstore did not define: pass another"
            " name, such as table='garden_plants', or create the store before db.reflect()"
        )
    return existing


def create_table(connection: Connection, table: Table) -> None:
    """Create the table if it does not exist."""
    try:
        table.create(connection, checkfirst=True)
    except exc.DBAPIError as error:
        if error.connection_invalidated:
            raise
        connection.rollback()  # PostgreSQL executes nothing in a transaction that has failed.
        if not inspect(connection).has_table(table.name, connection.schema_for_object(table)):
            raise
        # Another worker has created the table since the check.


def check_table(connection: Connection, table: Table, database: Database) -> None:
    """Check that a table loses and changes no plant.

    The table may have other columns too. What a constraint or a trigger refuses, the database
    reports when it does so.

    :raises TableMissing: if it does not exist.
    :raises StoreMisconfigured: if it loses or changes plants. The message says why.
    """
    problems = [*_database_faults(connection, table, database)]
    try:
        problems += _faults(connection, table, database)
    except exc.NoSuchTableError:
        if not problems:
            raise table_missing(table) from None
    except exc.UnreflectableTableError as error:
        problems.append(one_line(error))
    if problems:
        raise misconfigured(table, "; ".join(problems))


def table_missing(table: Table) -> TableMissing:
    """Return the exception for a table that does not exist."""
    return TableMissing(
        f"table {table.name}: it does not exist; run the migrations of the site, such as flask db"
        " upgrade"
    )


def _database_faults(connection: Connection, table: Table, database: Database) -> Iterator[str]:
    values = {"schema": connection.schema_for_object(table), "table": table.name}
    checks = database.table_checks
    # One statement, because each takes a round trip.
    query = ", ".join(f"EXISTS ({check})" for check in checks.values())
    found = connection.execute(text(f"SELECT {query}"), values).one()
    yield from (problem for problem, is_found in zip(checks, found, strict=True) if is_found)


def _faults(connection: Connection, table: Table, database: Database) -> Iterator[str]:
    found = _columns(connection, table) or _columns(connection, table)
    columns = {column["name"]: column for column in found}
    missing = {*Plant._fields} - {*columns}
    if missing:
        yield f"it has no column {' and no column '.join(sorted(missing))}"
        return
    schema = connection.schema_for_object(table)
    key = inspect(connection).get_pk_constraint(table.name, schema)["constrained_columns"]
    if key != ["id"]:
        yield "its primary key must be the column id alone"
    id = columns["id"]["type"]
    if not isinstance(id, database.id_type) or getattr(id, "unsigned", False):
        yield "the column id must be a signed BIGINT"
    for name in Plant._fields[1:]:
        column, definition = columns[name], table.c[name]
        is_text = isinstance(column["type"], database.text_types)
        has_limit = getattr(column["type"], "length", None) is not None
        if isinstance(definition.type, Text) and (has_limit or not is_text):
            yield f"the column {name} must be {database.text_types[0].__name__.upper()}"
        if definition.nullable and not column["nullable"]:
            yield f"the column {name} must be nullable"


def _columns(connection: Connection, table: Table) -> list[ReflectedColumn]:
    """Return the columns, or none if the table is created between the queries of SQLAlchemy.

    Nothing is kept for a later query: an inspector would keep that there are none.
    """
    return inspect(connection).get_columns(table.name, connection.schema_for_object(table))
