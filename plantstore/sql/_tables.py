"""The table of plants: its columns, its definition, and the check that a table is as defined."""

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, Table, exc, inspect, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.types import BigInteger, Text

from ..stores.base import Plant, StoreMisconfigured

# In MySQL and MariaDB, TEXT is limited to 65,535 bytes.
_TEXT = Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")

#: The types that a database may report for the type of a column.
Types = Mapping[type[Any], tuple[type[Any], ...]]


class TableMissing(StoreMisconfigured):
    """The table does not exist. The store may create it, or has no plants."""


def make_columns() -> list[Column[Any]]:
    """Return a new column for each field of a plant, the same for every database."""
    return [
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", _TEXT, nullable=False),
        Column("tag", _TEXT),
    ]


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
        # Another process has created the table since the check.


def check_table(connection: Connection, table: Table, types: Types, faults: dict[str, str]) -> None:
    """Check that a table loses and changes no plant. It may have other columns, too.

    :param faults: queries of the database, by the message if one returns a row.
    :raises TableMissing: if it does not exist.
    :raises StoreMisconfigured: if it loses or changes plants. The message says why.
    """
    problems = list[str]()
    if faults:  # By one statement, because each takes a round trip.
        queries = ", ".join(f"EXISTS ({query})" for query in faults.values())
        values = {"schema": connection.schema_for_object(table), "table": table.name}
        problems += compress(faults, connection.execute(text(f"SELECT {queries}"), values).one())
    try:
        problems += _faults(connection, table, types)
    except exc.NoSuchTableError:
        if not problems:
            raise table_missing(table) from None
    if problems:
        raise misconfigured(table, "; ".join(problems))


def table_missing(table: Table) -> TableMissing:
    """Return the exception for a table that does not exist."""
    return TableMissing(
        f"table {table.name}: it does not exist; run the migrations of the site, such as flask db"
        " upgrade"
    )


def misconfigured(table: Table, problem: str) -> StoreMisconfigured:
    """Return the exception for a table that cannot store plants."""
    return StoreMisconfigured(f"table {table.name}: {problem}")


def dropped(table: Table) -> StoreMisconfigured:
    """Return the exception for a table that has not kept a new plant."""
    return misconfigured(table, "a rule, a trigger or a constraint drops plants")


def _faults(connection: Connection, table: Table, types: Types) -> Iterator[str]:
    schema = connection.schema_for_object(table)
    # SQLAlchemy finds no columns if the table is created meanwhile. An inspector would keep that.
    listed = inspect(connection).get_columns(table.name, schema)
    listed = listed or inspect(connection).get_columns(table.name, schema)
    columns = {column["name"]: column for column in listed}
    missing = {*Plant._fields} - {*columns}
    if missing:
        yield f"it has no column {' and no column '.join(sorted(missing))}"
        return
    key = inspect(connection).get_pk_constraint(table.name, schema)["constrained_columns"]
    if key != ["id"]:
        yield "its primary key must be the column id alone"
    for name in Plant._fields:
        column, definition = columns[name], table.c[name]
        found, allowed = column["type"], types[type(definition.type)]
        has_limit = getattr(found, "length", None) is not None or getattr(found, "unsigned", False)
        if has_limit or not isinstance(found, allowed):
            is_text = isinstance(definition.type, Text)
            right = allowed[0].__name__.upper() if is_text else "a signed BIGINT"
            yield f"the column {name} must be {right}"
        if not definition.primary_key and definition.nullable != column["nullable"]:
            yield f"the column {name} must be {'nullable' if definition.nullable else 'NOT NULL'}"
