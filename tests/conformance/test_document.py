"""The document is valid OpenAPI 3.1."""

import json
from itertools import combinations

import pytest

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document

pytestmark = pytest.mark.conformance


def test_document_is_valid() -> None:
    """openapi-spec-validator finds no error, whichever operations are enabled."""
    validator = pytest.importorskip("openapi_spec_validator")
    for count in range(1, len(OPERATIONS) + 1):
        for names in combinations(OPERATIONS, count):
            document = json.loads(json.dumps(make_document(names)))
            assert [*validator.OpenAPIV31SpecValidator(document).iter_errors()] == [], names
