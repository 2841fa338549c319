"""Litestar, with a guard for the token, and msgspec's structs."""

from typing import Annotated

from litestar import Litestar, post
from litestar.exceptions import ClientException, NotAuthorizedException
from msgspec import Meta, Struct

plants = {}


class Plant(Struct, omit_defaults=True):
    name: str
    tag: str | None = None


class NewPlant(Plant, kw_only=True):
    id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


def authenticate(connection, _handler):
    if connection.headers.get("Authorization") != "Bearer s3cret":
        raise NotAuthorizedException("The token is not accepted.")


@post("/plants", guards=[authenticate], status_code=200)
async def create_plant(data: NewPlant) -> Plant:
    if data.id in plants:
        raise ClientException("A plant with this id already exists.")
    plants[data.id] = data
    return Plant(data.name, data.tag)


app = Litestar([create_plant])
