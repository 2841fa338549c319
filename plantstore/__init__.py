"""The Plant Store interface 1.0.0, as a service or as a blueprint for any Flask site."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

from .app import create_app
from .auth import StaticTokens
from .blueprint import create_blueprint
from .settings import SettingsError
from .signals import plant_added
from .stores import MemoryStore, Plant, PlantExists, Store, StoreUnavailable, open_store

if TYPE_CHECKING:
    from .stores.sql import SQLStore as SQLStore

__all__ = [
    "MemoryStore",
    "Plant",
    "PlantExists",
    "SettingsError",
    "StaticTokens",
    "Store",
    "StoreUnavailable",
    "create_app",
    "create_blueprint",
    "open_store",
    "plant_added",
]


def __getattr__(name: str) -> object:
    # SQLAlchemy is imported where it is used, and may be missing.
    if name == "SQLStore":
        from .stores.sql import SQLStore

        return SQLStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
