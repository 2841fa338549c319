"""The command that copies an SQLite file."""

import os
import re
from contextlib import suppress

import click

from ..stores.urls import existing
from ..text import printable
from ._parameters import examples, opened, with_url, wrong_url
from ._replacing import replacing

# What SQLite adds to the name of a database, for the files that belong to it.
_BESIDE = ("-wal", "-shm", "-journal")
_ONLY_SQLITE = (
    "this command copies only an SQLite file. Use pg_dump or mariadb-dump for a database server,"
    " and export for another store."
)


@click.command(epilog=examples("plantstore backup copy.db --store sqlite:///plants.db"))
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@with_url
def backup(url: str, file: str) -> None:
    """Copy an SQLite database to FILE, also while the service runs.

    FILE is then a complete database: the plants as they were at one moment, and all other tables.
    If FILE exists, it is replaced when the copy is complete. If the backup fails or is interrupted,
    FILE is unchanged.

    The service goes on. But if the database has no write-ahead log, new plants wait until the copy
    is complete.

    For a database server, use pg_dump or mariadb-dump instead.
    """
    url = existing(url)
    with opened(url):  # It checks the URL, and reports the errors of the store.
        if not url.startswith("sqlite:"):
            raise wrong_url(_ONLY_SQLITE)
        from ..sql import back_up, database_file

        _refuse_in_use(file, database_file(url))
        with replacing(file) as copy:
            back_up(url, copy.name)


def _refuse_in_use(file: str, source: str) -> None:
    """Refuse to replace the store itself, or a database that may be in use."""
    target, shown = os.path.realpath(file), printable(file)
    if file in {"", "-"} or (os.path.exists(target) and not os.path.isfile(target)):
        raise click.BadParameter("must be the name of a file.", param_hint="FILE")
    base = re.sub(f"({'|'.join(_BESIDE)})$", "", target)
    with suppress(OSError):  # The next steps report a file that is missing.
        if os.path.samefile(base, source):
            raise click.UsageError(f"{shown} belongs to the store itself. Choose another file.")
    for beside in (target + ending for ending in _BESIDE):
        # SQLite would apply an old log or journal to the new database.
        if os.path.lexists(beside):
            raise click.UsageError(
                f"{shown} may be a database in use, because {printable(beside)} exists."
                " Choose another file."
            )


#: The commands of this module.
COMMANDS = [backup]
