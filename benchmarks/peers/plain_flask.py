"""Flask with marshmallow, combined as their documentation recommends."""

from threading import Lock

from flask import Flask, jsonify, request
from marshmallow import EXCLUDE, Schema, ValidationError, fields
from marshmallow.validate import Range

app = Flask(__name__)
plants = {}
lock = Lock()


class PlantSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    name = fields.String(required=True)
    tag = fields.String()


class NewPlantSchema(PlantSchema):
    id = fields.Integer(required=True, strict=True, validate=Range(-(2**63), 2**63 - 1))


@app.before_request
def authenticate():
    if request.authorization is None or request.authorization.token != "s3cret":
        return jsonify(error=40102, message="The token is not accepted."), 401


@app.errorhandler(ValidationError)
def invalid(error):
    return jsonify(error=40003, message=str(error.messages)), 400


@app.post("/plants")
def create_plant():
    plant = NewPlantSchema().load(request.get_json())
    with lock:
        if plant["id"] in plants:
            return jsonify(error=40004, message="A plant with this id already exists."), 400
        plants[plant["id"]] = plant
    return PlantSchema().dump(plant)
