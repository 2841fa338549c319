"""The document is valid OpenAPI 3.1."""

import json
import re
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


def test_patterns_of_other_languages() -> None:
    """Each pattern compiles in RE2, the syntax of Go, and finds U+0000."""
    re2 = pytest.importorskip("re2", reason="pip install -r tests/conformance/requirements.txt")
    patterns = set(re.findall('"pattern": ("[^,}]*")', json.dumps(make_document(OPERATIONS))))
    assert patterns
    for pattern in map(json.loads, patterns):
        compiled = re2.compile(pattern)
        assert compiled.fullmatch("früh\n")
        assert not compiled.fullmatch("a\0b")
