"""The operations of the plant store: each view loads, acts and dumps."""

from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

from flask import Response, request
from marshmallow import ValidationError
from werkzeug.datastructures import MultiDict

from .body import read_body
from .errors import ERRORS, Refused
from .json_text import describe_json_error
from .responses import ServiceResponse, json_response
from .schemas import (
    PlantSchema,
    describe_faults,
    new_plant_schema,
    page_schema,
    parse_integer,
    plant_schema,
)
from .signals import announce_added, announce_changed, announce_removed
from .stores.base import INT64, Plant, Store
from .stores.deadline import OPERATION, deadline

# The number of characters after which a page ends before its limit, so that it fits into memory.
_PAGE_CHARACTERS = 4_000_000


class Views:
    """The views of the operations on a store.

    The URL prefix of a site may have parameters, which each view receives and ignores.

    :param store: the store that keeps the plants.
    :param max_body: the largest request body in bytes.
    """

    def __init__(self, store: Store, max_body: int) -> None:
        self._store = store
        self._max_body = max_body

    def create(self, **_: Any) -> Response:
        """Create a new plant in the store."""
        plant = Plant(**_load(new_plant_schema, read_body(self._max_body)))
        self._store.add(plant)
        announce_added(plant)
        return json_response(plant_schema.dump(plant))

    def read(self, plantstore_id: str, **_: Any) -> Response:
        """Return the plant with an id."""
        plant = self._store.get(_parse_id(plantstore_id))
        if plant is None:
            raise Refused(40402)
        return json_response(plant_schema.dump(plant))

    def list(self, **_: Any) -> Response:
        """Return a page of the plants with their ids, in ascending order of the ids."""
        page = _load_page(request.args)
        limit = page["limit"]
        with deadline(OPERATION):
            plants, has_next = _take(self._store.iterate(page["after"]), limit)
        links = [_next_link(limit, plants[-1].id)] if has_next else []
        return json_response(new_plant_schema.dump(plants, many=True), headers=links)

    def update(self, plantstore_id: str, **_: Any) -> Response:
        """Replace the plant with an id. Without a tag in the body, it has none afterwards."""
        members = _load(plant_schema, read_body(self._max_body)) | {"id": _parse_id(plantstore_id)}
        plant = Plant(**members)
        try:
            self._store.replace(plant)
        except KeyError:
            raise Refused(40402) from None
        announce_changed(plant)
        return json_response(plant_schema.dump(plant))

    def delete(self, plantstore_id: str, **_: Any) -> Response:
        """Remove the plant with an id from the store."""
        id = _parse_id(plantstore_id)
        try:
            self._store.remove(id)
        except KeyError:
            raise Refused(40402) from None
        announce_removed(id)
        return ServiceResponse(b"", 204)


def _load(schema: PlantSchema, body: bytes) -> dict[str, Any]:
    """Return the members of a plant that a body has, or refuse it by 40002 or 40003."""
    try:
        members: dict[str, Any] = schema.loads(body)
    except ValidationError as error:
        raise Refused(40003, describe_faults(error)) from None
    except JSONDecodeError as error:
        raise Refused(40002, describe_json_error(error), reason="The body is not JSON.") from None
    return members


def _parse_id(text: str) -> int:
    """Return the id in a path. Any other form than the canonical one is that of no plant."""
    id = parse_integer(text)
    if id is None or id not in INT64:
        raise Refused(40402, f"{ERRORS[40402][0]} An id is an integer from -2^63 to 2^63-1.")
    return id


def _load_page(parameters: MultiDict[str, str]) -> dict[str, Any]:
    """Return the parameters of a page: at most ``limit`` plants, with ids greater than ``after``.

    :raises Refused: 40006 if a parameter is unknown, repeated or invalid. The message names it.
    """
    try:
        page: dict[str, Any] = page_schema.load(parameters.to_dict(flat=False))
    except ValidationError as error:
        raise Refused(40006, describe_faults(error)) from None
    return page


def _take(plants: Iterator[Plant], limit: int) -> tuple[list[Plant], bool]:
    """Return the first plants, and whether there are more.

    :param limit: the maximum number of plants. There are fewer if their texts are very long.
    """
    taken: list[Plant] = []
    characters = 0
    for plant in plants:
        if len(taken) == limit or characters > _PAGE_CHARACTERS:
            return taken, True
        taken.append(plant)
        characters += plant.characters
    return taken, False


def _next_link(limit: int, after: int) -> tuple[str, str]:
    """Return the header with the link to the next page (RFC 8288).

    It has only a query, so it is correct behind every proxy and under every prefix: a client
    resolves it against the URL that it has requested (RFC 3986 section 5.2).
    """
    return "Link", f'<?limit={limit}&after={after}>; rel="next"'
