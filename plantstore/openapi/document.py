"""The OpenAPI document of the operations that are served."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..blueprint import OPERATIONS
from ..errors import ERRORS_PAGE

# The document of all operations.
_DOCUMENT = Path(__file__).parent / "openapi.json"
# What the document says of itself if it describes interface 1.0.0 and nothing else.
_INTERFACE = {
    "description": (
        "Clients add plants to the store. Every operation needs a bearer token. The response to a"
        " refused request is an Error. Its number is the HTTP status times 100, plus a counter."
    ),
    "version": "1.0.0",
}


def make_document(served: Collection[str] = ("create",)) -> dict[str, Any]:
    """Return the OpenAPI document that describes the operations that are served, and nothing else.

    With ``create`` alone, it is that of interface 1.0.0. Its version is 1.1.0 otherwise.

    :param served: the names of the operations. By default, there is only ``create``.
    """
    document: dict[str, Any] = json.loads(_DOCUMENT.read_text("utf-8"))
    paths = document["paths"]
    links = paths["/plants"]["post"]["responses"]["200"]["links"]
    for name in OPERATIONS.keys() - {*served}:
        del paths[OPERATIONS[name].path][OPERATIONS[name].method.lower()]
        links.pop(name, None)
    _remove_unused(document["components"], document)
    if {*served} == {"create"}:
        document["info"] |= _INTERFACE
    if ERRORS_PAGE:
        document["externalDocs"] = {"description": "Errors and retries", "url": ERRORS_PAGE}
    found: dict[str, Any] = json.loads(json.dumps(document), object_hook=_without_empty)
    return found | {"paths": found.get("paths", {})}


def _remove_unused(components: dict[str, Any], document: dict[str, Any]) -> None:
    """Remove the components that no operation uses, also by way of another component."""
    text = json.dumps(document)
    unused = [
        (kind, name)
        for kind in components.keys() - {"securitySchemes"}
        for name in components[kind]
        if f'"#/components/{kind}/{name}"' not in text
    ]
    for kind, name in unused:
        del components[kind][name]
    if unused:
        _remove_unused(components, document)


def _without_empty(members: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the objects in which nothing is left."""
    return {name: member for name, member in members.items() if member != {}}
