"""The interface of a store, the plants in memory, and the URLs of stores."""

from .base import BulkStore, Plant, PlantExists, Store, StoreMisconfigured, StoreUnavailable
from .memory import MemoryStore
from .urls import open_store

__all__ = [
    "BulkStore",
    "MemoryStore",
    "Plant",
    "PlantExists",
    "Store",
    "StoreMisconfigured",
    "StoreUnavailable",
    "open_store",
]
