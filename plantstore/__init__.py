"""The Plant Store interface 1.0.0, as a standalone service or as a blueprint for any Flask site."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

#: The version of this package. setup.cfg reads it.
__version__ = "0.2.0.dev0"

from .app import create_app
from .auth import Client, StaticTokens, VerifyToken
from .blueprint import create_blueprint
from .observability.health import create_health_blueprint
from .openapi.blueprint import create_docs_blueprint
from .schemas import ErrorSchema, NewPlantSchema, PlantSchema
from .settings import SettingsError
from .signals import plant_added, plant_changed, plant_removed
from .stores.base import (
    Plant,
    PlantExists,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    check_plant,
)
from .stores.memory import MemoryStore
from .stores.urls import open_store

if TYPE_CHECKING:
    from .sql import SQLStore

__all__ = [
    "Client",
    "ErrorSchema",
    "MemoryStore",
    "NewPlantSchema",
    "Plant",
    "PlantExists",
    "PlantSchema",
    "SettingsError",
    "StaticTokens",
    "Store",
    "StoreMisconfigured",
    "StoreUnavailable",
    "VerifyToken",
    "check_plant",
    "create_app",
    "create_blueprint",
    "create_docs_blueprint",
    "create_health_blueprint",
    "open_store",
    "plant_added",
    "plant_changed",
    "plant_removed",
]

if find_spec("sqlalchemy") is not None:  # pragma: no branch
    __all__ += ["SQLStore"]


def __getattr__(name: str) -> object:
    """Import SQLStore on first use, so that the package can be imported without SQLAlchemy."""
    if name != "SQLStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .sql import SQLStore
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise  # SQLAlchemy is installed, but it cannot be imported.
        raise ImportError("SQLStore needs SQLAlchemy: pip install 'plantstore[sqlite]'") from error
    return SQLStore
