"""The token, the plants and the host sites that the tests share.

This module does not import pytest: a real server can also load it.
"""

from itertools import count
from typing import Any

import orjson
from flask import Flask

from plantstore import MemoryStore, Plant, StaticTokens, create_blueprint, create_docs_blueprint
from plantstore.blueprint import OPERATIONS, ServiceBlueprint

TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}

# The tag has a character outside ASCII, so that every comparison of bytes also covers UTF-8.
ROSE_PLANT = Plant(1, "Rose", "früh")
ROSE = ROSE_PLANT.members()
ROSE_JSON = orjson.dumps(ROSE)

# Ids for tests that share a server; each id is used only once.
unused_ids = count(1000)

# A plant without a tag.
LILY = Plant(2, "Lily")


def new_rose() -> bytes:
    """Return a create request body like ROSE_JSON, with an unused id."""
    return orjson.dumps(ROSE | {"id": next(unused_ids)})


def make_blueprint(**options: Any) -> ServiceBlueprint:
    """Return ``create_blueprint(**options)``; by default with an empty store and TOKEN."""
    defaults = {"store": MemoryStore(), "verify_token": StaticTokens([TOKEN])}
    return create_blueprint(**{**defaults, **options})


def make_site(site: Flask | None = None, *, url_prefix: str | None = None, **options: Any) -> Flask:
    """Return a site, by default a new one, after registering ``make_blueprint(**options)``."""
    site = Flask("site") if site is None else site
    site.register_blueprint(make_blueprint(**options), url_prefix=url_prefix)
    return site


def documented_site() -> Flask:
    """Return a site that embeds all operations and the page."""
    site = make_site(url_prefix="/garden", operations=[*OPERATIONS])
    site.register_blueprint(create_docs_blueprint(), url_prefix="/garden")
    return site
