"""The document is valid OpenAPI 3.1."""

import json
from itertools import combinations

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(
    "names",
    [names for count in range(1, 5) for names in combinations(OPERATIONS, count)],
    ids=",".join,
)
def test_document_is_valid(names: list[str]) -> None:
    """openapi-spec-validator finds no error, whichever operations are enabled."""
    document = json.loads(json.dumps(make_document(names)))
    assert [*OpenAPIV31SpecValidator(document).iter_errors()] == []
