"""Falcon with marshmallow: a resource, and middleware for authentication."""

from bisect import bisect_right, insort
from threading import Lock

import falcon
from marshmallow import EXCLUDE, Schema, ValidationError, fields
from marshmallow.validate import Range

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


plant_schema = PlantSchema()
new_plant_schema = NewPlantSchema()


class Authenticate:
    def process_request(self, request, response):
        if request.auth != "Bearer s3cret":
            raise falcon.HTTPUnauthorized(title="The token is not accepted.")


class Plants:
    def on_post(self, request, response):
        try:
            plant = new_plant_schema.load(request.get_media())
        except ValidationError as error:
            raise falcon.HTTPBadRequest(description=str(error.messages)) from None
        with lock:
            if plant["id"] in plants:
                raise falcon.HTTPBadRequest(title="A plant with this id already exists.")
            plants[plant["id"]] = plant
            insort(ids, plant["id"])
        response.media = plant_schema.dump(plant)

    def on_get(self, request, response):
        limit = request.get_param_as_int("limit", min_value=1, max_value=1000, default=100)
        after = request.get_param_as_int("after")
        with lock:
            start = 0 if after is None else bisect_right(ids, after)
            page = [plants[id] for id in ids[start : start + limit]]
        response.media = new_plant_schema.dump(page, many=True)


class PlantById:
    def on_get(self, request, response, id):
        if id not in plants:
            raise falcon.HTTPNotFound(title="There is no plant with this id.")
        response.media = plant_schema.dump(plants[id])


app = falcon.App(middleware=[Authenticate()])
app.add_route("/plants", Plants())
app.add_route("/plants/{id:int}", PlantById())
