"""The columns of plants."""

from typing import Any

from sqlalchemy import BigInteger, Column, Text
from sqlalchemy.dialects.mysql import LONGTEXT

# In MySQL and MariaDB, TEXT is limited to 65,535 bytes.
_TEXT = Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")


def make_columns() -> list[Column[Any]]:
    """Return a new column for each field of a plant, the same for every database."""
    return [
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("name", _TEXT, nullable=False),
        Column("tag", _TEXT),
    ]
