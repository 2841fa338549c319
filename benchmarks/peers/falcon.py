"""Falcon with marshmallow: a resource, and middleware for authentication."""

from threading import Lock

import falcon
from marshmallow import EXCLUDE, Schema, ValidationError, fields
from marshmallow.validate import Range

plants = {}
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
        response.media = plant_schema.dump(plant)


app = falcon.App(middleware=[Authenticate()])
app.add_route("/plants", Plants())
