"""The operations of the plant store: each view loads, acts and dumps."""

from json import JSONDecodeError
from typing import Any

from flask import Response, request
from marshmallow import ValidationError

from .body import read_body
from .errors import Refused, describe_faults, describe_json_error
from .integers import parse_integer
from .paging import load_page, next_link, take
from .responses import JSONResponse, no_content
from .schemas import new_plant_schema, plant_schema
from .signals import announce_added, announce_removed
from .stores.base import Plant, Store
from .stores.deadline import TIMEOUT, deadline


class Views:
    """The views of the operations on a store.

    The URL prefix of a site may have parameters, which each view receives and ignores.

    :param store: the store that keeps the plants.
    :param max_body: the largest request body in bytes.
    """

    def __init__(self, store: Store, max_body: int) -> None:
        self._store = store
        self._max_body = max_body

    def create_plant(self, **_: Any) -> Response:
        """Create a new plant in the store (interface section 4)."""
        new_plant = _load(read_body(request, self._max_body))
        plant = Plant(new_plant["id"], new_plant["name"], new_plant.get("tag"))
        self._store.add(plant)
        announce_added(plant)
        return JSONResponse(plant_schema.dump(new_plant))

    def read_plant(self, plantstore_id: str, **_: Any) -> Response:
        """Return the plant with an id."""
        plant = self._store.get(_id(plantstore_id))
        if plant is None:
            raise Refused(40402)
        return JSONResponse(plant_schema.dump(plant._asdict()))

    def list_plants(self, **_: Any) -> Response:
        """Return a page of the plants with their ids, in ascending order of the ids."""
        page = load_page(request.args)
        with deadline(TIMEOUT):
            plants, has_next = take(self._store.iterate(page.after), page.limit)
        links = [next_link(page.limit, plants[-1].id)] if has_next else []
        new_plants = [plant._asdict() for plant in plants]
        return JSONResponse(new_plant_schema.dump(new_plants, many=True), headers=links)

    def delete_plant(self, plantstore_id: str, **_: Any) -> Response:
        """Remove the plant with an id from the store."""
        id = _id(plantstore_id)
        try:
            self._store.remove(id)
        except KeyError:
            raise Refused(40402) from None
        announce_removed(id)
        return no_content()


def _load(body: bytes) -> dict[str, Any]:
    try:
        new_plant: dict[str, Any] = new_plant_schema.loads(body)
    except ValidationError as error:
        raise Refused(40003, describe_faults(error)) from None
    except JSONDecodeError as error:
        raise Refused(40002, describe_json_error(error)) from None
    return new_plant


def _id(text: str) -> int:
    """Return the id in a path. Any other form than the canonical one is that of no plant."""
    id = parse_integer(text)
    if id is None:
        raise Refused(40402)
    return id
