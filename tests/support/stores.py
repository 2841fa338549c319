"""Stores that fail, and the plants that every store keeps."""

from typing import Any, get_type_hints

import hypothesis.strategies as st
import pytest

from plantstore import Plant, open_store

IDS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))

_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: IDS,
    str: TEXTS,
    int | None: st.none() | IDS,
    str | None: st.none() | TEXTS,
}

PLANTS = st.builds(Plant, *(_VALUES[type] for type in get_type_hints(Plant).values()))


def refusal(url: str) -> str:
    """Return why open_store refuses a URL: one line without the password hunter2."""
    with pytest.raises(ValueError, match=".") as caught:
        open_store(url)
    message = str(caught.value)
    assert "hunter2" not in message
    assert "\n" not in message
    return message
