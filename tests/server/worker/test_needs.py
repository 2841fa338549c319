"""The names of gunicorn that the worker needs."""

from typing import Any

import pytest

from plantstore.server.worker import missing_names
from plantstore.server.worker._needs import _NAMES

NAMES = [(owner, name) for owner, names in _NAMES.items() for name in names]


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=[name for _, name in NAMES])
def test_name_that_gunicorn_does_not_have(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name that the worker needs is reported if gunicorn, or the system, lacks it."""
    assert missing_names() == []
    monkeypatch.delattr(owner, name)
    assert missing_names() == [f"{owner.__name__}.{name}"]
