"""APIFlask, with its decorators for authentication, input and output."""

from threading import Lock

from apiflask import APIFlask, HTTPTokenAuth, Schema, abort
from apiflask.fields import Integer, String
from apiflask.validators import Range
from marshmallow import EXCLUDE

app = APIFlask(__name__, title="Plant Store", version="1.0.0")
auth = HTTPTokenAuth()
plants = {}
lock = Lock()


class PlantSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    name = String(required=True)
    tag = String()


class NewPlantSchema(PlantSchema):
    id = Integer(required=True, strict=True, validate=Range(-(2**63), 2**63 - 1))


@auth.verify_token
def verify_token(token):
    return "client" if token == "s3cret" else None


@app.post("/plants")
@app.auth_required(auth)
@app.input(NewPlantSchema)
@app.output(PlantSchema)
def create_plant(json_data):
    with lock:
        if json_data["id"] in plants:
            abort(400, "A plant with this id already exists.")
        plants[json_data["id"]] = json_data
    return json_data
