"""flask-smorest with SQLAlchemy's ORM, one session per request."""

import os

from flask import Flask
from flask.views import MethodView
from flask_smorest import Api, Blueprint, abort
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import sessionmaker

from .rows import Base, PlantRow
from .smorest import NewPlantSchema, PlantSchema, authenticate
from .smorest import app as in_memory

engine = create_engine(os.environ["DATABASE_URL"], pool_size=8, max_overflow=0)
make_session = sessionmaker(engine, expire_on_commit=False)
Base.metadata.create_all(engine)
blueprint = Blueprint("plants", "plants", url_prefix="/plants")
blueprint.before_request(authenticate)


@blueprint.route("")
class Plants(MethodView):
    @blueprint.arguments(NewPlantSchema)
    @blueprint.response(200, PlantSchema)
    def post(self, plant):
        row = PlantRow(**plant)
        with make_session() as session:
            session.add(row)
            try:
                session.commit()
            except IntegrityError:
                abort(400, message="A plant with this id already exists.")
        return row


app = Flask(__name__)
app.config.from_mapping(in_memory.config)
Api(app).register_blueprint(blueprint)
