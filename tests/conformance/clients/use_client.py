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


def create(client: AuthenticatedClient, id: int) -> Error | Plant | None:
    """Create a plant with an id; return the response."""
    new = NewPlant(id=id, name=f"plant {id}", tag="indoor")
    return create_plant.sync(client=client, body=new)


def check_responses(client: AuthenticatedClient) -> None:
    """Check both kinds of response: a plant, and an error."""
    plant = create(client, 1)
    assert isinstance(plant, Plant)
    assert (plant.name, plant.tag) == ("plant 1", "indoor")
    refused = create(client, 1)
    assert isinstance(refused, Error)
    assert refused.error == 40004
    assert read_plant.sync(1, client=client) == plant
    assert update_plant.sync(1, client=client, body=Plant("new")) == Plant("new")


def list_ids(client: AuthenticatedClient) -> list[int]:
    """Return the ids of all plants, page by page."""
    ids: list[int] = []
    after: int | Unset = UNSET
    while True:
        response = list_plants.sync_detailed(client=client, limit=100, after=after)
        assert isinstance(response.parsed, list)
        ids += [plant.id for plant in response.parsed]
        if "link" not in response.headers:
            return ids
        after = ids[-1]


with AuthenticatedClient(base_url=sys.argv[1], token="s3cret") as client:
    check_responses(client)
    for id in range(2, 251):
        create(client, id)
    assert list_ids(client) == [*range(1, 251)]
    assert delete_plant.sync_detailed(1, client=client).status_code == 204
