"""The table of plants: its definition, and the check that a table is as defined."""

from collections.abc import Iterator

from sqlalchemy import (
    VARCHAR,
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    exc,
    inspect,
    text,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.engine.interfaces import ReflectedColumn

from ..arguments import type_error

# In MySQL and MariaDB, TEXT is limited to 65,535 bytes.
_TEXT = Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
_MYSQL_CHECKS = {
    "its storage engine must be InnoDB": (
        "SELECT 1 FROM information_schema.tables"
        " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
        " AND engine <> 'InnoDB'"
    ),
    "its character set must be utf8mb4": (
        "SELECT 1 FROM information_schema.columns"
        " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
        " AND column_name IN ('name', 'tag') AND character_set_name <> 'utf8mb4'"
    ),
    "the character set of the connection must be utf8mb4": (
        "SELECT 1 FROM DUAL WHERE @@character_set_client <> 'utf8mb4'"
        " OR @@character_set_connection <> 'utf8mb4'"
    ),
}
# For each dialect, what can be wrong, with a query that returns a row if it is wrong.
_CHECKS: dict[str, dict[str, str]] = {
    "sqlite": {
        "its constraints must not have ON CONFLICT": (
            "SELECT 1 FROM sqlite_master WHERE name = :table AND sql LIKE '%ON CONFLICT%'"
        ),
    },
    "postgresql": {
        # SQL_ASCII stores the bytes of UTF-8 unchanged.
        "the encoding of the database must be UTF8": (
            "SELECT 1 WHERE current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII')"
        ),
        "the encoding of the connection must be UTF8": (
            "SELECT 1 WHERE current_setting('client_encoding') <> 'UTF8'"
        ),
        "it must not have a rule that replaces inserts": (
            "SELECT 1 FROM pg_rules WHERE schemaname = COALESCE(:schema, current_schema())"
            " AND tablename = :table AND definition LIKE '%ON INSERT%DO INSTEAD%'"
        ),
    },
    "mysql": _MYSQL_CHECKS,
    "mariadb": _MYSQL_CHECKS,
}


def define_table(name: str, metadata: MetaData, engine: Engine) -> Table:
    """Return the table of plants, the same for every engine.

    :param name: the name of the table.
    :param metadata: the metadata that contains the table. Several stores may use one table.
    :param engine: the engine, which limits the length of the name.
    :raises TypeError: if the name is not a string.
    :raises ValueError: if the name is empty or too long, or if the metadata has a table of this
        name that is not a table of plants.
    """
    if not isinstance(name, str):
        raise type_error("table", "a string, the name of a table", name)
    longest = engine.dialect.max_identifier_length
    if not 0 < len(name.encode()) <= longest or "\0" in name:
        raise ValueError(f"table must be a name of 1 to {longest} bytes")
    key = f"{metadata.schema}.{name}" if metadata.schema else name
    existing = metadata.tables.get(key)
    if existing is not None:
        return _own(existing)
    return Table(
        name,
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", _TEXT, nullable=False),
        Column("tag", _TEXT),
        info={"plantstore": True},
        implicit_returning=False,
        sqlite_with_rowid=False,  # One B-tree, with the id as its key, instead of two.
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _own(existing: Table) -> Table:
    if not existing.info.get("plantstore"):
        raise ValueError(
            f"metadata already has a table {existing.name}, which plantstore did not define: pass"
            " another name, such as table='garden_plants', or create the store before db.reflect()"
        )
    return existing


def create_table(connection: Connection, table: Table) -> None:
    """Create the table if it does not exist."""
    try:
        table.create(connection, checkfirst=True)
    except exc.DBAPIError as error:
        if error.connection_invalidated or not _exists(connection, table):
            raise
        # Another worker has created the table since the check.


def table_problem(connection: Connection, table: Table) -> str | None:
    """Return what prevents a table from storing every plant unchanged, or ``None``.

    The table may have other columns too, if the database fills them.
    """
    try:
        return "; ".join(_faults(connection, table)) or None
    except (exc.NoSuchTableError, exc.UnreflectableTableError):
        return "it does not exist; run the migrations of the site, such as flask db upgrade"


def _exists(connection: Connection, table: Table) -> bool:
    return inspect(connection).has_table(table.name, connection.schema_for_object(table))


def _faults(connection: Connection, table: Table) -> Iterator[str]:
    inspector, schema = inspect(connection), connection.schema_for_object(table)
    columns = {column["name"]: column for column in inspector.get_columns(table.name, schema)}
    missing = {"id", "name", "tag"} - {*columns}
    if missing:
        yield f"it has no column {' and no column '.join(sorted(missing))}"
        return
    if inspector.get_pk_constraint(table.name, schema)["constrained_columns"] != ["id"]:
        yield "its primary key must be the column id alone"
    dialect = connection.dialect.name
    yield from _id_faults(columns.pop("id"), dialect)
    for name in ("name", "tag"):
        yield from _text_faults(columns.pop(name), dialect)
    for column in columns.values():
        if not column["nullable"] and not _is_filled(column):
            yield f"the column {column['name']} must be nullable or have a default"
    values = {"schema": schema, "table": table.name}
    for problem, query in _CHECKS.get(dialect, {}).items():
        if connection.execute(text(query), values).first():
            yield problem


def _id_faults(column: ReflectedColumn, dialect: str) -> Iterator[str]:
    # In SQLite, every integer has up to 64 bits. Some sites have INTEGER there for BIGINT.
    integer = Integer if dialect == "sqlite" else BigInteger
    if not isinstance(column["type"], integer) or getattr(column["type"], "unsigned", False):
        yield "the column id must be a signed BIGINT"
    if _is_filled(column):
        yield "the database must not fill the column id (AUTO_INCREMENT, IDENTITY or a default)"


def _text_faults(column: ReflectedColumn, dialect: str) -> Iterator[str]:
    name, type = column["name"], column["type"]
    longtext = dialect in {"mysql", "mariadb"}
    unlimited = isinstance(type, LONGTEXT if longtext else Text | VARCHAR)
    if not unlimited or getattr(type, "length", None) is not None:
        yield f"the column {name} must be {'LONGTEXT' if longtext else 'TEXT'}"
    if column.get("computed"):
        yield f"the column {name} must not be computed"
    if name == "tag" and not column["nullable"]:
        yield "the column tag must be nullable"


def _is_filled(column: ReflectedColumn) -> bool:
    by_sequence = column.get("autoincrement") is True or column.get("identity") is not None
    return by_sequence or column["default"] is not None or column.get("computed") is not None
