"""Uses the client that openapi-python-client generates."""

import sys

from plant_store_client import AuthenticatedClient
from plant_store_client.api.plants import (
    create_plant,
    delete_plant,
    list_plants,
    read_plant,
    update_plant,
)
from plant_store_client.models import Error, NewPlant, Plant
from plant_store_client.types import UNSET, Unset

client = AuthenticatedClient(base_url=sys.argv[1], token="s3cret")


def create(id: int) -> Error | Plant | None:
    """Create a plant with an id; return the response."""
    new = NewPlant(id=id, name=f"plant {id}", tag="indoor")
    return create_plant.sync(client=client, body=new)


# Both kinds of response: a plant, and an error.
plant = create(1)
assert isinstance(plant, Plant)
assert (plant.name, plant.tag) == ("plant 1", "indoor")
refused = create(1)
assert isinstance(refused, Error)
assert refused.error == 40004
assert read_plant.sync(1, client=client) == plant
assert update_plant.sync(1, client=client, body=Plant("new")) == Plant("new")

# All plants, page by page.
for id in range(2, 251):
    create(id)
ids: list[int] = []
after: int | Unset = UNSET
is_last = False
while not is_last:
    page = list_plants.sync_detailed(client=client, limit=100, after=after)
    assert isinstance(page.parsed, list)
    ids += [listed.id for listed in page.parsed]
    after, is_last = ids[-1], "link" not in page.headers
assert ids == [*range(1, 251)]
assert delete_plant.sync_detailed(1, client=client).status_code == 204
