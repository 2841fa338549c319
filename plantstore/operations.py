"""The operations of the plant store."""

from collections.abc import Collection
from typing import NamedTuple


class Operation(NamedTuple):
    """An operation: its method, its path in OpenAPI below the URL prefix, and its endpoint."""

    method: str
    path: str
    endpoint: str

    @property
    def rule(self) -> str:
        """The path as a rule of Flask."""
        # A site may have a parameter with the name id in its URL prefix.
        return self.path.replace("{id}", "<plantstore_id>")


_PLANTS, _PLANT = "/plants", "/plants/{id}"

#: The operations by name.
OPERATIONS: dict[str, Operation] = {
    "create": Operation("POST", _PLANTS, "create_plant"),
    "read": Operation("GET", _PLANT, "read_plant"),
    "list": Operation("GET", _PLANTS, "list_plants"),
    "delete": Operation("DELETE", _PLANT, "delete_plant"),
}


def check_operations(names: Collection[str]) -> None:
    """Check the names of the operations to serve.

    :raises ValueError: if there is no name, or an unknown one. The message does not show it.
    """
    known = [*OPERATIONS]
    if not names or any(name not in known for name in names):
        raise ValueError(f"must have one or more of {', '.join(known)}, and nothing else")
