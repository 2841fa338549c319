"""The pages of a list of plants."""

from collections.abc import Iterator
from typing import NamedTuple

from marshmallow import ValidationError
from werkzeug.datastructures import MultiDict

from .errors import Refused, describe_faults
from .schemas import page_schema
from .stores.base import Plant

# The number of characters at which a page ends before its limit, so that it fits into memory.
_FULL = 4_000_000


class Page(NamedTuple):
    """Which plants are on a page: at most ``limit``, with ids greater than ``after``, if given."""

    limit: int
    after: int | None


def load_page(parameters: MultiDict[str, str]) -> Page:
    """Return the page that the parameters of a query describe.

    :raises Refused: 40006 if a parameter is unknown, repeated or invalid. The message names it.
    """
    try:
        return Page(**page_schema.load(parameters.to_dict(flat=False)))
    except ValidationError as error:
        raise Refused(40006, describe_faults(error)) from None


def take(plants: Iterator[Plant], limit: int) -> tuple[list[Plant], bool]:
    """Return the first plants, and whether there are more.

    :param limit: the maximum number of plants. There are fewer if their texts are very long.
    """
    taken: list[Plant] = []
    characters = 0
    for plant in plants:
        if len(taken) == limit or characters > _FULL:
            return taken, True
        taken.append(plant)
        characters += plant.characters
    return taken, False


def next_link(limit: int, after: int) -> tuple[str, str]:
    """Return the header with the link to the next page (RFC 8288).

    It has only a query, so it is correct behind every proxy and under every prefix: a client
    resolves it against the URL that it has requested (RFC 3986 section 5.2).
    """
    return "Link", f'<?limit={limit}&after={after}>; rel="next"'
