"""Random input from hypothesis never causes a 500, and is never changed."""

import json
from collections.abc import Callable
from decimal import Decimal
from json import JSONDecodeError
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from marshmallow import EXCLUDE, INCLUDE, RAISE, ValidationError
from werkzeug.test import TestResponse

from plantstore import MemoryStore, Plant
from plantstore.schemas import NewPlantSchema, error_schema, new_plant_schema, plant_schema
from tests.support.serving import Gunicorn, post
from tests.support.sites import BEARER, ROSE_JSON, TOKEN, make_site

# Any JSON value.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
# Characters that change the meaning of a JSON text.
SYNTAX = '[]{},:"\\u01d8.-e tag'
# An object with any values of the members.
NEARLY_NEW = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "name", "tag", "x"), ANYTHING | st.text() | st.integers())
)
# Integers near the limits of int32, of exact floats, of int64 and of uint64.
AROUND = st.sampled_from([0, 2**31, 2**53, 2**63, 2**64]).flatmap(
    lambda middle: st.integers(middle - 3, middle + 3) | st.integers(-middle - 3, -middle + 3)
)


class Service:
    """A service with an empty store, whose every response is checked."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.client = make_site(store=self.store).test_client()

    def post(self, body: bytes, **environ: Any) -> TestResponse:
        options = {"content_type": "application/json", "headers": BEARER}
        response = self.client.post("/plants", data=body, environ_overrides=environ, **options)
        assert response.content_type == "application/json"
        assert response.json is not None
        if response.status_code == 200:
            assert plant_schema.validate(response.json) == {}
            assert set(response.json) <= {"name", "tag"}
            assert len(self.store) == 1
        else:
            assert response.status_code in {400, 401, 413}
            assert error_schema.validate(response.json) == {}
            assert response.json["error"] // 100 == response.status_code
            assert len(response.json["message"]) <= 500
            assert len(self.store) == 0
        return response


def outcome(load: Callable[[bytes], Any], body: bytes) -> Any:
    """Return what a function loads from a body, or the kind of its error."""
    try:
        return load(body)
    except ValidationError as error:
        return error.messages
    except JSONDecodeError:
        return JSONDecodeError


def decode(body: bytes, **options: Any) -> Any:
    """Return the value of a body that orjson accepts. Python's json does not round integers."""
    orjson.loads(body)
    return json.loads(body, **options)


@given(st.integers(0, len(ROSE_JSON)), st.integers(0, 9), st.text(SYNTAX, max_size=5))
def test_loads_equals_orjson_for_a_mutated_body(at: int, cut: int, put: str) -> None:
    """Of a valid body with any few characters replaced, loads returns what orjson would."""
    body = ROSE_JSON[:at] + put.encode() + ROSE_JSON[at + cut :]
    schema = new_plant_schema
    expected = outcome(lambda text: schema.load(decode(text, parse_float=Decimal)), body)
    assert outcome(schema.loads, body) == expected


@given(NEARLY_NEW | st.lists(NEARLY_NEW) | ANYTHING, st.sampled_from([EXCLUDE, INCLUDE, RAISE]))
def test_loads_equals_load(value: Any, unknown: Any) -> None:
    """From any JSON value, loads returns what load returns from its exact numbers."""
    schema = NewPlantSchema(unknown=unknown, many=isinstance(value, list))
    body = json.dumps(value).encode()
    # As a float, 1.801439850948199e+16 is 18014398509481992.
    expected = outcome(lambda text: schema.load(decode(text, parse_float=Decimal)), body)
    assert outcome(schema.loads, body) == expected


@given(st.binary())
def test_any_bytes_as_body(body: bytes) -> None:
    """Any bytes as a body are a plant or a client error, never a 500."""
    Service().post(body)


@given(st.integers(0, len(ROSE_JSON)), st.integers(0, 3), st.binary(max_size=3))
def test_any_mutation_of_a_valid_body(at: int, cut: int, put: bytes) -> None:
    """A valid body with any few bytes replaced is a plant or a client error, never a 500."""
    Service().post(ROSE_JSON[:at] + put + ROSE_JSON[at + cut :])


@given(ANYTHING)
def test_any_json_as_body(value: Any) -> None:
    """Any JSON value is a plant or a client error, never a 500."""
    Service().post(json.dumps(value).encode())


@given(NEARLY_NEW)
def test_any_values_of_the_members(new: dict[str, Any]) -> None:
    """An object with any values of the members is a plant or a client error, never a 500."""
    Service().post(json.dumps(new).encode())


@given(AROUND | st.integers())
def test_any_integer_id(id: int) -> None:
    """An integer id is accepted exactly when it is within int64, and is stored unchanged."""
    service = Service()
    response = service.post(b'{"id":%d,"name":""}' % id)
    assert (response.status_code == 200) == (-(2**63) <= id < 2**63)
    assert [plant.id for plant in service.store] == [id] * (response.status_code == 200)


@given(AROUND | st.integers(-(2**60), 2**60), st.sampled_from([".0", "e0", ".00E+0"]))
def test_any_integer_id_with_fraction_or_exponent(id: int, ending: str) -> None:
    """An integer id written as a float is stored exactly or refused, never rounded."""
    service = Service()
    response = service.post(f'{{"id":{id}{ending},"name":""}}'.encode())
    assert (response.status_code == 200) == (abs(id) <= 2**53)
    assert [plant.id for plant in service.store] == [id] * (response.status_code == 200)


@given(st.floats())
def test_any_float_id(id: float) -> None:
    """A float is an id only if it is an integer."""
    response = Service().post(json.dumps({"id": id, "name": ""}).encode())
    assert (response.status_code == 200) == (id.is_integer() and abs(id) <= 2**53)


@given(st.decimals(-(2**53), 2**53) | st.integers(-9, 9).map(lambda n: n + Decimal("1e-30")))
def test_any_decimal_id(number: Decimal) -> None:
    """A number of any precision is an id only if it is an integer, and is stored exactly."""
    service = Service()
    response = service.post(f'{{"id":{number:e},"name":""}}'.encode())
    assert (response.status_code == 200) == (number == int(number))
    assert [plant.id for plant in service.store] == [number] * (response.status_code == 200)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_round_trip(text: str) -> None:
    """Any text is returned unchanged, except U+0000 and lone surrogates, which are refused."""
    service = Service()
    response = service.post(json.dumps({"id": 1, "name": text, "tag": text}).encode())
    # JSON decodes a pair of surrogates as one character.
    text = json.loads(json.dumps(text))
    valid = "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    assert (response.status_code == 200) == valid
    assert list(service.store) == [Plant(1, text, text)] * valid


@given(st.text(st.characters(max_codepoint=255)) | st.from_regex(r"(?i)bearer *[!-~]*"))
def test_any_credentials(credentials: str) -> None:
    """Any credentials but the one valid token are unauthorized."""
    response = Service().post(ROSE_JSON, HTTP_AUTHORIZATION=credentials)
    words = credentials.split(" ")
    right = words[0].lower() == "bearer" and [word for word in words[1:] if word] == [TOKEN]
    assert (response.status_code == 200) == (right and words[-1] != "")
    assert response.status_code in {200, 401}


@given(st.sampled_from(["CONTENT_TYPE", "CONTENT_LENGTH", "HTTP_CONTENT_ENCODING"]), st.text())
def test_any_header_value(name: str, value: str) -> None:
    """Any value of a header that the service reads is accepted or a client error, never a 500."""
    Service().post(ROSE_JSON, **{name: value})


@given(st.binary(max_size=200))
def test_any_credentials_over_a_socket(server: Gunicorn, credentials: bytes) -> None:
    """A real server refuses any bytes as credentials as a client error."""
    line = b"Authorization: " + credentials.replace(b"\n", b"").replace(b"\r", b"")
    response = server.request(post(ROSE_JSON).replace(b"Authorization: Bearer s3cret", line))
    assert response.status in {400, 401}


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_chunks_over_a_socket(server: Gunicorn, pieces: list[bytes]) -> None:
    """A real server refuses any bytes as a chunked body as a client error."""
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with server.connect() as connection:
        connection.send(head + b"".join(pieces))
        connection.finish()
        assert connection.receive().status in {400, 413}
