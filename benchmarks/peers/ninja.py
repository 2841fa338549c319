"""Django Ninja, with its bearer authentication and schemas, without a database."""

from threading import Lock

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="hunter2", INSTALLED_APPS=["ninja"]
)
django.setup()

from django.urls import path  # noqa: E402
from ninja import Field, NinjaAPI, Schema  # noqa: E402
from ninja.errors import HttpError  # noqa: E402
from ninja.security import HttpBearer  # noqa: E402

plants = {}
lock = Lock()


class Bearer(HttpBearer):
    def authenticate(self, request, token):
        return "client" if token == "s3cret" else None


class Plant(Schema):
    name: str
    tag: str | None = None


class NewPlant(Plant):
    id: int = Field(strict=True, ge=-(2**63), le=2**63 - 1)


api = NinjaAPI(auth=Bearer())


@api.post("/plants", response=Plant, exclude_none=True)
def create_plant(request, plant: NewPlant):
    with lock:
        if plant.id in plants:
            raise HttpError(400, "A plant with this id already exists.")
        plants[plant.id] = plant
    return plant


urlpatterns = [path("", api.urls)]
app = get_wsgi_application()
