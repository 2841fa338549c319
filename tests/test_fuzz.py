"""Random input from hypothesis never causes a 500, and is never changed."""

import json
from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from plantstore import MemoryStore, Plant
from plantstore.schemas import plant_schema
from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON, make_site

# Any JSON value.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
# An object with any values of the members.
NEARLY_NEW = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "name", "tag", "x"), ANYTHING | st.text() | st.integers())
)
# Integers near the limits of int32, of exact floats, of int64 and of uint64.
AROUND = st.sampled_from([0, 2**31, 2**53, 2**63, 2**64]).flatmap(
    lambda middle: st.integers(middle - 3, middle + 3) | st.integers(-middle - 3, -middle + 3)
)


def mutated(puts: st.SearchStrategy[bytes], most: int) -> st.SearchStrategy[bytes]:
    """Return valid bodies with any few bytes replaced."""
    places = st.integers(0, len(ROSE_JSON)), st.integers(0, most)
    valid = ROSE_JSON
    return st.builds(lambda at, cut, put: valid[:at] + put + valid[at + cut :], *places, puts)


BODIES = {
    "bytes": st.binary(),
    "mutated": mutated(st.binary(max_size=3), 3),
    # With characters that change the meaning of a JSON text.
    "syntax": mutated(st.text('[]{},:"\\u01d8.-e tag', max_size=5).map(str.encode), 9),
    "members": NEARLY_NEW.map(json.dumps).map(str.encode),
}


def post(body: bytes) -> tuple[int, list[Plant]]:
    """Send a body to an empty store, and check the response; return its status and the plants."""
    store = MemoryStore()
    response = send(make_site(store=store).test_client(), body)
    if response.status_code == 200:
        assert plant_schema.validate(response.json or {}) == {}
        assert set(response.json or {}) <= {"name", "tag"}
    else:
        assert response.status_code in {400, 401, 413}
        check_error(response, (response.json or {})["error"])
    assert len(store) == (response.status_code == 200)
    return response.status_code, [*store]


@pytest.mark.parametrize("bodies", BODIES.values(), ids=BODIES)
@given(data=st.data())
def test_any_body(bodies: st.SearchStrategy[bytes], data: st.DataObject) -> None:
    """Any body is a plant or a client error, never a 500."""
    post(data.draw(bodies))


INTEGERS = AROUND | st.integers()
# Numbers as integers, with a fraction or an exponent, as floats and decimals, and near an integer.
NUMBERS = (
    INTEGERS.map(str)
    | st.builds("{}{}".format, INTEGERS, st.sampled_from([".0", "e0", ".00E+0"]))
    | st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.decimals(-(2**53), 2**53).map("{:e}".format)
    | st.integers(-9, 9).map(lambda n: str(n + Decimal("1e-25")))
)


@settings(max_examples=4 * settings().max_examples)
@given(NUMBERS)
def test_any_number_as_id(literal: str) -> None:
    """A number is an id, and stored exactly, if no float has rounded it to an integer of int64."""
    number = Decimal(literal)
    status, stored = post(f'{{"id":{literal},"name":""}}'.encode())
    valid = -(2**63) <= number < 2**63
    if {*literal} & {*".eE"}:
        valid = number == int(number) and abs(number) < 2**53
    assert (status == 200, [plant.id for plant in stored]) == (valid, [int(number)] * valid)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_round_trip(text: str) -> None:
    """Any text is returned unchanged, except U+0000 and lone surrogates, which are refused."""
    _, stored = post(json.dumps({"id": 1, "name": text, "tag": text}).encode())
    # JSON decodes a pair of surrogates as one character.
    text = json.loads(json.dumps(text))
    valid = "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    assert stored == [Plant(1, text, text)] * valid
