"""FastAPI, with its bearer authentication and models."""

from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

app = FastAPI(title="Plant Store", version="1.0.0")
plants = {}


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
    return plant
