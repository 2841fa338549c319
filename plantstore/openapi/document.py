"""The OpenAPI document of the operations that are served."""

import json
from collections.abc import Collection
from importlib.resources import files
from typing import Any

from ..blueprint import OPERATIONS
from ..errors import ERRORS_PAGE

# The statuses of the responses that every operation can have.
_COMMON = ("401", "403", "405", "500", "503", "default")


def make_document(operations: Collection[str] = ("create",)) -> dict[str, Any]:
    """Return the OpenAPI document that describes operations, and nothing else.

    With ``create`` alone, it is that of interface 1.0.0. Its version is 1.1.0 otherwise.

    :param operations: the names of the operations. By default, there is only ``create``.
    """
    document = _read("openapi.json")
    if {*operations} != {"create"}:
        _add(document, _read("openapi_1.1.json"))
        _add_common(document["paths"])
    created = document["paths"]["/plants"]["post"]["responses"]["200"]
    for name in OPERATIONS.keys() - {*operations}:
        operation = OPERATIONS[name]
        document["paths"].get(operation.path, {}).pop(operation.method.lower(), None)
        created.get("links", {}).pop(name, None)
    document["paths"] = {path: item for path, item in document["paths"].items() if item}
    if ERRORS_PAGE:
        document["externalDocs"] = {"description": "Errors and retries", "url": ERRORS_PAGE}
    return document


def _add_common(paths: dict[str, Any]) -> None:
    """Give every operation the common responses, which the document describes for a create."""
    created = paths["/plants"]["post"]["responses"]
    common = {status: created[status] for status in _COMMON}
    for item in paths.values():
        for operation in item.values():
            operation["responses"] = dict(sorted({**common, **operation["responses"]}.items()))


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((files(__package__) / name).read_text("utf-8"))
    return document


def _add(document: dict[str, Any], additions: dict[str, Any]) -> None:
    """Add the members of an object to another one. A value replaces one of the same name."""
    for name, value in additions.items():
        if isinstance(value, dict) and name in document:
            _add(document[name], value)
        else:
            document[name] = value
