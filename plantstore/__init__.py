"""The Plant Store interface 1.0.0, as a service or as a blueprint for any Flask site."""

__version__ = "0.1.0"

from .app import create_app
from .auth import StaticTokens
from .blueprint import create_blueprint
from .settings import SettingsError
from .stores import MemoryStore, Plant, PlantExists, Store, StoreUnavailable, open_store

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
]
