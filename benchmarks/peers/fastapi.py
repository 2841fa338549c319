"""FastAPI, with its bearer authentication and models."""

from bisect import bisect_right, insort
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

app = FastAPI(title="Plant Store", version="1.0.0")
plants = {}
ids = []  # In order, for the list.


class Plant(BaseModel):
    name: str
    tag: str | None = None


class NewPlant(Plant):
    id: int = Field(strict=True, ge=-(2**63), le=2**63 - 1)


async def authenticate(
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
):
    if credentials.credentials != "s3cret":
        raise HTTPException(401, "The token is not accepted.")


@app.post("/plants", dependencies=[Depends(authenticate)], response_model_exclude_none=True)
async def create_plant(plant: NewPlant) -> Plant:
    if plant.id in plants:
        raise HTTPException(400, "A plant with this id already exists.")
    plants[plant.id] = plant
    insort(ids, plant.id)
    return plant


@app.get("/plants", dependencies=[Depends(authenticate)], response_model_exclude_none=True)
async def list_plants(
    limit: Annotated[int, Query(ge=1, le=1000)] = 100, after: int | None = None
) -> list[NewPlant]:
    start = 0 if after is None else bisect_right(ids, after)
    return [plants[id] for id in ids[start : start + limit]]


@app.get("/plants/{id}", dependencies=[Depends(authenticate)], response_model_exclude_none=True)
async def read_plant(id: int) -> Plant:
    if id not in plants:
        raise HTTPException(404, "There is no plant with this id.")
    return plants[id]
