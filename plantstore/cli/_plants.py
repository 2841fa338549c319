"""The commands that add, show, list, count, change and remove plants."""

import sys
from typing import Any

import click
from marshmallow import ValidationError

from ..schemas import Int64, describe_faults, new_plant_schema
from ..stores.base import Plant, Store
from ..text import printable
from ._formats import as_json
from ._parameters import ID, NEGATIVE_ID, Command, examples, with_store


def _with_optional_fields(command: Command) -> Command:
    """Pass each optional field of a plant to a command, by an option with its name."""
    for name, field in reversed(new_plant_schema.load_fields.items()):
        if not field.required:
            help = f"The {name} of the plant. By default, it has none."
            kind = ID if isinstance(field, Int64) else click.STRING
            command = click.option(f"--{name}", help=help, type=kind)(command)
    return command


@click.command(
    context_settings=NEGATIVE_ID,
    epilog=examples("plantstore add 1 Monstera --tag indoor --store sqlite:///plants.db"),
)
@click.argument("id", type=ID)
@click.argument("name")
@_with_optional_fields
@with_store(creates=True)
def add(store: Store, **fields: Any) -> None:
    """Add a plant with this ID and this NAME.

    If an SQLite file is missing, it is created.
    """
    store.add(_plant(fields))


@click.command(
    context_settings=NEGATIVE_ID, epilog=examples("plantstore show 1 --store sqlite:///plants.db")
)
@click.argument("id", type=ID)
@with_store()
def show(store: Store, id: int) -> None:
    """Print the plant with this ID as JSON."""
    plant = store.get(id)
    if plant is None:
        raise _not_found(id)
    # Bytes, because the encoding of the terminal may lack a character.
    click.echo(printable(as_json(plant).decode()).encode())


@click.command(
    "list",
    help=f"""Print all plants in the order of their ids.

    Each line has {", ".join(Plant._fields)}, separated by tabs. Control characters, such as line
    breaks, are escaped.
    """,
    epilog=examples("plantstore list --after 17 --store sqlite:///plants.db"),
)
@click.option("--after", type=ID, metavar="ID", help="Print only plants with a greater id.")
@with_store()
def list_(store: Store, after: int | None) -> None:
    """Print the plants."""
    for plant in store.iterate(after):
        cells = ("" if value is None else str(value) for value in plant)
        sys.stdout.buffer.write("\t".join(map(printable, cells)).encode() + b"\n")


@click.command(epilog=examples("plantstore count --store sqlite:///plants.db"))
@with_store()
def count(store: Store) -> None:
    """Print the number of plants in the database."""
    click.echo(len(store))


@click.command(
    context_settings=NEGATIVE_ID,
    epilog=examples("plantstore change 1 --name Monstera --tag indoor --store sqlite:///plants.db"),
)
@click.argument("id", type=ID)
@click.option("--name", required=True, help="The name of the plant.")
@_with_optional_fields
@with_store()
def change(store: Store, **fields: Any) -> None:
    """Replace the plant with this ID. What is not given, such as its tag, is removed."""
    try:
        store.replace(_plant(fields))
    except KeyError:
        raise _not_found(fields["id"]) from None
    except NotImplementedError as error:
        raise click.UsageError(f"{error}.") from None


@click.command(
    context_settings=NEGATIVE_ID,
    epilog=examples("plantstore remove 1 --store sqlite:///plants.db"),
)
@click.argument("id", type=ID)
@with_store()
def remove(store: Store, id: int) -> None:
    """Remove the plant with this ID from the database."""
    try:
        store.remove(id)
    except KeyError:
        raise _not_found(id) from None


def _plant(fields: dict[str, Any]) -> Plant:
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return Plant(**new_plant_schema.load(given))
    except ValidationError as error:
        raise click.UsageError(describe_faults(error)) from None


def _not_found(id: int) -> click.ClickException:
    return click.ClickException(f"there is no plant {id}.")


#: The commands of this module.
COMMANDS = [add, show, list_, count, change, remove]
