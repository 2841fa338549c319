"""The table of plants: its definition, and the check that a table is as defined."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, Table, Text, exc, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn

from ..stores.base import Plant, StoreMisconfigured
from ..text import one_line
from ._columns import make_columns
from .databases import Database, misconfigured


class TableMissing(StoreMisconfigured):
    """The table does not exist. The store may create it, or has no plants."""


def define_table(name: str, metadata: MetaData, engine: Engine) -> Table:
    """Return the table of plants, the same for every engine.

    :param metadata: the metadata that contains the table. Several stores may use one table.
    :param engine: the engine, which limits the length of the name.
    :raises ValueError: if the name is empty or too long, or if the metadata has a table of this
        name that is not a table of plants.
    """
    longest = engine.dialect.max_identifier_length
    if not 0 < len(name.encode()) <= longest or "\0" in name:
        raise ValueError(f"table must be a name of 1 to {longest} bytes")
    key = f"{metadata.schema}.{name}" if metadata.schema else name
    existing = metadata.tables.get(key)
    if existing is not None and not existing.info.get("plantstore"):
        raise ValueError(
            f"metadata already has a table {name}, which plantstore did not define: pass another"
            " name, such as table='garden_plants', or create the store before db.reflect()"
        )
    if existing is not None:
        return existing
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
    :raises StoreMisconfigured: if it cannot. The message says why.
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
    inspector, schema = inspect(connection), connection.schema_for_object(table)
    # There are none if another process creates the table between the queries of SQLAlchemy.
    columns = _columns(connection, table) or _columns(connection, table)
    missing = {*Plant._fields} - {*columns}
    if missing:
        yield f"it has no column {' and no column '.join(sorted(missing))}"
        return
    if inspector.get_pk_constraint(table.name, schema)["constrained_columns"] != ["id"]:
        yield "its primary key must be the column id alone"
    id = columns["id"]["type"]
    if not isinstance(id, database.id_type) or getattr(id, "unsigned", False):
        yield "the column id must be a signed BIGINT"
    for name in Plant._fields[1:]:
        yield from _field_faults(columns[name], table.c[name], database)


def _columns(connection: Connection, table: Table) -> dict[str, ReflectedColumn]:
    found = inspect(connection).get_columns(table.name, connection.schema_for_object(table))
    return {column["name"]: column for column in found}


def _field_faults(
    column: ReflectedColumn, definition: Column[Any], database: Database
) -> Iterator[str]:
    name, type = column["name"], column["type"]
    is_text = isinstance(type, database.text_types) and getattr(type, "length", None) is None
    if isinstance(definition.type, Text) and not is_text:
        yield f"the column {name} must be {database.text_types[0].__name__.upper()}"
    if definition.nullable and not column["nullable"]:
        yield f"the column {name} must be nullable"
