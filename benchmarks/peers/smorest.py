"""flask-smorest: a method view that declares its arguments and its response."""

from bisect import bisect_right, insort
from threading import Lock

from flask import Flask, request
from flask.views import MethodView
from flask_smorest import Api, Blueprint, abort
from marshmallow import EXCLUDE, Schema, fields
from marshmallow.validate import Range

app = Flask(__name__)
app.config["API_TITLE"] = "Plant Store"
app.config["API_VERSION"] = "1.0.0"
app.config["OPENAPI_VERSION"] = "3.1.0"
api = Api(app)
blueprint = Blueprint("plants", "plants", url_prefix="/plants")
plants = {}
ids = []  # In order, for the list.
lock = Lock()


class PlantSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    name = fields.String(required=True)
    tag = fields.String()


class NewPlantSchema(PlantSchema):
    id = fields.Integer(required=True, strict=True, validate=Range(-(2**63), 2**63 - 1))


class PageSchema(Schema):
    limit = fields.Integer(load_default=100, validate=Range(1, 1000))
    after = fields.Integer(load_default=None)


@blueprint.before_request
def authenticate():
    if request.authorization is None or request.authorization.token != "s3cret":
        abort(401, message="The token is not accepted.")


@blueprint.route("")
class Plants(MethodView):
    @blueprint.arguments(NewPlantSchema)
    @blueprint.response(200, PlantSchema)
    def post(self, plant):
        with lock:
            if plant["id"] in plants:
                abort(400, message="A plant with this id already exists.")
            plants[plant["id"]] = plant
            insort(ids, plant["id"])
        return plant

    @blueprint.arguments(PageSchema, location="query")
    @blueprint.response(200, NewPlantSchema(many=True))
    def get(self, page):
        with lock:
            start = 0 if page["after"] is None else bisect_right(ids, page["after"])
            return [plants[id] for id in ids[start : start + page["limit"]]]


@blueprint.route("/<int(signed=True):id>")
class PlantById(MethodView):
    @blueprint.response(200, PlantSchema)
    def get(self, id):
        if id not in plants:
            abort(404, message="There is no plant with this id.")
        return plants[id]


api.register_blueprint(blueprint)
