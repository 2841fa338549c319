"""The command that copies an SQLite file."""

import os

import click

from ..stores.urls import existing
from ._parameters import examples, opened, refuse_database, with_url, wrong_url
from ._replacing import replacing

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
        from ..sql import back_up, file_of, make_engine

        if file in {"", "-"} or (os.path.exists(file) and not os.path.isfile(file)):
            raise click.BadParameter("must be the name of a file.", param_hint="FILE")
        refuse_database(file, file_of(make_engine(url).url))
        with replacing(file) as copy:
            back_up(url, copy.name)


#: The commands of this module.
COMMANDS = [backup]
