"""The public names of the package."""

import pytest

import plantstore


def test_every_public_name_exists() -> None:
    """Each name of __all__ can be imported, and an unknown name raises AttributeError."""
    names: dict[str, object] = {}
    exec("from plantstore import *", names)
    assert {*plantstore.__all__} <= {*names}
    with pytest.raises(AttributeError, match="weeds"):
        plantstore.weeds  # noqa: B018
