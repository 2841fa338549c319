"""What schemathesis cannot know from the document."""

from itertools import count
from typing import Any

import schemathesis

_ids = count(1_000_000)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Give each new plant an unused id: a repeated one is refused (40004)."""
    if case.method == "POST" and isinstance(case.body, dict):
        id: Any = case.body.get("id")
        if type(id) in {int, float} and -(2**63) <= id < 2**63 and id == int(id):
            case.body["id"] = next(_ids)


@schemathesis.check
def plant_has_no_id(context: Any, response: Any, case: Any) -> None:
    """Check that the body of a success has no id."""
    if response.status_code == 200 and case.method in {"GET", "POST", "PUT"}:
        assert isinstance(response.json(), list) or "id" not in response.json()
