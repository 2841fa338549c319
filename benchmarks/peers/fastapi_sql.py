"""FastAPI with SQLAlchemy's asynchronous ORM, one session per request."""

import os
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .rows import Base, PlantRow

engine = create_async_engine(os.environ["ASYNC_DATABASE_URL"], pool_size=8, max_overflow=0)
make_session = async_sessionmaker(engine, expire_on_commit=False)


class Plant(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    name: str
    tag: str | None = None


class NewPlant(Plant):
    id: int = Field(strict=True, ge=-(2**63), le=2**63 - 1)


@asynccontextmanager
async def lifespan(app):
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(title="Plant Store", version="1.0.0", lifespan=lifespan)


async def authenticate(
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
):
    if credentials.credentials != "s3cret":
        raise HTTPException(401, "The token is not accepted.")


async def get_session():
    async with make_session() as session:
        yield session


@app.post("/plants", dependencies=[Depends(authenticate)], response_model_exclude_none=True)
async def create_plant(
    plant: NewPlant, session: Annotated[AsyncSession, Depends(get_session)]
) -> Plant:
    row = PlantRow(**plant.model_dump())
    session.add(row)
    try:
        await session.commit()
    except IntegrityError:
        raise HTTPException(400, "A plant with this id already exists.") from None
    return row
