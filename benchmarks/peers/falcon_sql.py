"""Falcon with SQLAlchemy's ORM, one session per request."""

import os

import falcon
from marshmallow import ValidationError
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import sessionmaker

from .falcon import Authenticate, new_plant_schema, plant_schema
from .rows import Base, PlantRow

engine = create_engine(os.environ["DATABASE_URL"], pool_size=8, max_overflow=0)
make_session = sessionmaker(engine, expire_on_commit=False)
Base.metadata.create_all(engine)


class Plants:
    def on_post(self, request, response):
        try:
            row = PlantRow(**new_plant_schema.load(request.get_media()))
        except ValidationError as error:
            raise falcon.HTTPBadRequest(description=str(error.messages)) from None
        with make_session() as session:
            session.add(row)
            try:
                session.commit()
            except IntegrityError:
                raise falcon.HTTPBadRequest(title="A plant with this id exists.") from None
        response.media = plant_schema.dump(row)


app = falcon.App(middleware=[Authenticate()])
app.add_route("/plants", Plants())
