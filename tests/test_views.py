"""The operations read, list, update and delete, and what all operations have in common."""

from typing import Any
from urllib.parse import urljoin

import pytest
from flask.testing import FlaskClient
from werkzeug.http import parse_options_header

from plantstore import MemoryStore, Plant, Store, StoreUnavailable
from plantstore.schemas import new_plant_schema, plant_schema
from plantstore.testing import StoreContract
from tests.support.responses import ALL, check_error, create, delete, get, perform
from tests.support.sites import BEARER, LILY, ROSE, ROSE_PLANT, make_blueprint, make_site

LOWEST, HIGHEST = -(2**63), 2**63 - 1
# What is no id of a plant, although a plant has the id 1, and another one the id 0.
NO_IDS = [
    *("2", "01", "+1", "1.0", "1e0", "-0", "%201", "1%20", "1%0A", "x", "١", "1_0", "0x1", "%00"),
    *(f"{2**63}", f"{LOWEST - 1}", "9" * 19, "-" + "9" * 5000, "é", "%FF", "-", "true"),
]
LIMIT = "limit: Must be an integer from 1 to 1000."
UNKNOWN = "Unknown parameter. The parameters are limit and after."
AFTER = "after: Must be an integer from -2^63 to 2^63-1."


@pytest.fixture
def client(store: MemoryStore) -> FlaskClient:
    """Return a client of a site with all operations."""
    return make_site(store=store, operations=ALL).test_client()


def pages(client: FlaskClient, path: str) -> list[list[int]]:
    """Return the ids on each page of a list, from a path on."""
    listed = []
    url: str | None = path
    while url is not None:
        response = get(client, url)
        assert response.status_code == 200
        assert response.json is not None
        assert not new_plant_schema.validate(response.json, many=True)
        listed.append([plant["id"] for plant in response.json])
        url = None
        if "Link" in response.headers:
            target, options = parse_options_header(response.headers["Link"])
            assert options == {"rel": "next"}
            url = urljoin(response.request.url, target.strip("<>"))
    return listed


@pytest.mark.parametrize("plant", [ROSE_PLANT, LILY, Plant(LOWEST, "", ""), Plant(HIGHEST, "🌵")])
def test_read_returns_the_plant_that_was_created(client: FlaskClient, plant: Plant) -> None:
    """Read returns the plant as its creation did: 200 with its name, and its tag if it has one."""
    created, response = create(client, plant.members()), get(client, f"/plants/{plant.id}")
    assert (response.status_code, response.data) == (200, created.data)
    assert response.headers.getlist("Content-Type") == ["application/json"]
    assert not plant_schema.validate(response.json or {})


@pytest.mark.parametrize("id", NO_IDS, ids=lambda id: ascii(id)[1:9])
def test_id_that_no_plant_has(client: FlaskClient, store: MemoryStore, id: str) -> None:
    """Anything but the id of a plant in its canonical form is 40402, which says what an id is."""
    store.add(ROSE_PLANT)
    store.add(Plant(0, ""))
    message = check_error(get(client, f"/plants/{id}"), 40402)
    assert ("An id is an integer" in message) == (id != "2")
    check_error(delete(client, id), 40402)
    check_error(client.put(f"/plants/{id}", json=ROSE, headers=BEARER), 40402)
    assert len(store) == 2


def test_list_has_the_ids(client: FlaskClient) -> None:
    """A list has NewPlants in ascending order of their ids; a plant without a tag has none."""
    assert get(client, "/plants").json == []
    for new in ({"id": 2, "name": "Lily"}, ROSE, {"id": -5, "name": "", "tag": ""}):
        create(client, new)
    response = get(client, "/plants")
    assert response.json == [{"id": -5, "name": "", "tag": ""}, ROSE, {"id": 2, "name": "Lily"}]
    assert response.headers.getlist("Content-Type") == ["application/json"]


def test_pages_of_a_list(client: FlaskClient, store: MemoryStore) -> None:
    """The links of a list lead to every plant once; limit is 100 by default, and 1000 at most."""
    ids = [LOWEST, *range(1, 249), HIGHEST]
    for id in ids:
        store.add(Plant(id, "x"))
    assert pages(client, "/plants") == [ids[:100], ids[100:200], ids[200:]]
    assert pages(client, "/plants?limit=125") == [ids[:125], ids[125:]]
    assert pages(client, "/plants?limit=1000&after=1") == [ids[2:]]
    assert pages(client, f"/plants?after={HIGHEST}") == [[]]
    assert pages(client, f"/plants?after={LOWEST}&limit=1")[:2] == [[1], [2]]
    link = get(client, "/plants?after=7").headers["Link"]
    assert link == '<?limit=100&after=107>; rel="next"'


def test_page_of_very_long_names(client: FlaskClient, store: MemoryStore) -> None:
    """A page ends early after some megabytes of text; its link leads to the other plants."""
    for id in range(4):
        store.add(Plant(id, "x" * 900_000, "y" * 900_000))
    assert pages(client, "/plants") == [[0, 1, 2], [3]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        *((f"limit={text}", LIMIT) for text in ("0", "1001", "", "%201", "+1", "1_0", "١")),
        *(("limit", LIMIT), ("limit=1;after=2", LIMIT)),
        *((f"after={text}", AFTER) for text in ("1.0", "-0", f"{2**63}", "9" * 5000)),
        ("limit=1&limit=1", "limit: Must be given only once."),
        ("page=2", f"page: {UNKNOWN}"),
        ("=2", f": {UNKNOWN}"),
        ("LIMIT=1&x%0Ay", f"LIMIT: {UNKNOWN} x y: {UNKNOWN}"),
        ("%FF=1", f"%FF: {UNKNOWN}"),
        ("x" * 9999, "x" * 499 + "…"),
        ("%1B" * 500, (r"\u001b" * 500)[:499] + "…"),
    ],
)
def test_bad_parameter_of_a_list(client: FlaskClient, query: str, expected: str) -> None:
    """A limit or after that is not valid, a repeated or an unknown parameter is 40006 by name."""
    assert check_error(get(client, f"/plants?{query}"), 40006) == expected


def test_delete_frees_the_id(client: FlaskClient, store: MemoryStore) -> None:
    """Delete is 204 without a body, and then 40402; the id is free again. A query is ignored."""
    for _ in range(2):
        assert client.post("/plants?limit=x", json=ROSE, headers=BEARER).status_code == 200
        assert get(client, "/plants/1?limit=x").status_code == 200
        response = delete(client, "1?limit=x")
        assert (response.status_code, response.data) == (204, b"")
        assert {*response.headers.keys()} == {"X-Request-ID"}
        check_error(delete(client, 1), 40402)
        check_error(get(client, "/plants/1"), 40402)
        assert list(store) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "Rosa", "tag": ""}, Plant(1, "Rosa", "")),
        ({"name": "Rosa"}, Plant(1, "Rosa")),
        (ROSE, ROSE_PLANT),
        ({"id": "x", "name": "🌵", "age": 5}, Plant(1, "🌵")),
    ],
)
def test_update_replaces_the_plant(
    client: FlaskClient, store: MemoryStore, body: Any, expected: Plant
) -> None:
    """An update, also a repeated one, is 200 with the Plant; other members are ignored."""
    store.add_some([ROSE_PLANT, LILY])
    members = {name: value for name, value in expected.members().items() if name != "id"}
    for _ in range(2):
        response = client.put("/plants/1", json=body, headers=BEARER)
        assert (response.status_code, response.json) == (200, members)
        assert list(store) == [expected, LILY]


# A request with each fault of a body, in the order in which they are found.
FAULTS: dict[int, dict[str, Any]] = {
    40001: {"data": b"x" * 100_000},
    41301: {"data": b"x" * 100_000, "content_type": "application/json"},
    40002: {"data": b'{"id": 1, "name": "\xff"', "content_type": "application/json"},
    40003: {"json": {"id": 1, "name": 5, "tag": None}},
}


def test_body_of_an_update_has_the_rules_of_a_create(
    client: FlaskClient, store: MemoryStore
) -> None:
    """A wrong body of an update gets the Error of a create, also if there is no such plant."""
    store.add(ROSE_PLANT)
    for number, fault in FAULTS.items():
        expected = check_error(client.post("/plants", headers=BEARER, **fault), number)
        for id in (1, 3, "x"):
            response = client.put(f"/plants/{id}", headers=BEARER, **fault)
            assert check_error(response, number) == expected
    assert list(store) == [ROSE_PLANT]


class Unchangeable(MemoryStore):
    """A store of a package that was written before there were updates."""

    one_process = False
    replace = Store.replace


def test_store_without_replace() -> None:
    """A store without replace has all other operations; update is refused when it is embedded."""
    with pytest.raises(ValueError, match="^this store cannot change plants: leave out the "):
        make_blueprint(store=Unchangeable(), operations=["create", "update"])
    client = make_site(store=Unchangeable(), operations={*ALL} - {"update"}).test_client()
    assert create(client, ROSE).status_code == 200
    StoreContract().test_replace_changes_one_plant(Unchangeable())


def test_plants_in_the_memory_of_several_processes(
    client: FlaskClient, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """If several processes serve plants in memory, every operation is 50302, as the log says."""
    store.add(LILY)
    several = {"wsgi.multiprocess": True}
    for name in ALL:
        check_error(perform(client, name, environ_overrides=several), 50302)
    assert (list(store), caplog.text.count("50302: ")) == ([LILY], len(ALL))
    shared = make_site(store=Unchangeable()).test_client()
    assert create(shared, ROSE, environ_overrides=several).status_code == 200


def test_store_that_fails_during_an_operation() -> None:
    """If the store becomes unavailable during an operation, the response is 50301."""

    class Unavailable(MemoryStore):
        def iterate(self, after: int | None = None) -> Any:
            yield ROSE_PLANT
            raise StoreUnavailable("no route to host")

        def replace(self, plant: Plant) -> None:
            raise StoreUnavailable("no route to host")

    client = make_site(store=Unavailable(), operations=ALL).test_client()
    assert "route" not in check_error(get(client, "/plants"), 50301)
    check_error(client.put("/plants/1", json=ROSE, headers=BEARER), 50301)


@pytest.mark.parametrize("prefix", ["/garden", "/<id>", "/<plant>/<int:limit>"])
def test_prefix_of_a_site(prefix: str, store: MemoryStore) -> None:
    """A site may embed all operations under any URL prefix, also one with parameters."""
    site = make_site(store=store, operations=ALL, url_prefix=prefix)
    client = site.test_client()
    root = prefix.replace("<id>", "5").replace("<plant>", "x").replace("<int:limit>", "9")
    for id in range(3):
        store.add(Plant(id, "x"))
    assert pages(client, f"{root}/plants?limit=2") == [[0, 1], [2]]
    assert get(client, f"{root}/plants/1").json == {"name": "x"}
    assert client.delete(f"{root}/plants/1", headers=BEARER).status_code == 204
    assert [plant.id for plant in store] == [0, 2]
