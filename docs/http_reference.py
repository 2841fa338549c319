"""Writes the operations of docs/http-reference.md from the OpenAPI document.

It is an extension of Sphinx, so the site cannot differ from what the service sends.
"""

import json
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from sphinx.application import Sphinx

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document


def resolve(document: Any, value: Any) -> Any:
    """Return a part of the document with every reference replaced by what it refers to."""
    if isinstance(value, list):
        return [resolve(document, item) for item in value]
    if not isinstance(value, dict):
        return value
    target = value
    for name in value.get("$ref", "#").split("/")[1:]:
        target = document[name] if target is value else target[name]
    if target is not value:
        return resolve(document, target)
    return {name: resolve(document, member) for name, member in value.items()}


def table(*rows: Iterable[str]) -> str:
    """Return a table, whose first row is the heading."""
    first, *others = ([*row] for row in rows)
    lines = [first, ["---"] * len(first), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def kind(schema: Any) -> str:
    """Return the type of a value, and its limits."""
    text = schema["type"] + (f" ({schema['format']})" if "format" in schema else "")
    if schema.get("maximum", 2**63) < 2**31:
        text += f", {schema['minimum']} to {schema['maximum']}"
    return text + (f", by default {schema['default']}" if "default" in schema else "")


def fields(schema: Any) -> Iterator[list[str]]:
    """Yield the row of each field of a plant."""
    for part in [*reversed(schema.get("allOf", [])), schema]:
        for name, member in part.get("properties", {}).items():
            needed = "required" if name in part.get("required", []) else "optional"
            yield [f"`{name}`", kind(member), needed, member["description"]]


def content(message: Any) -> tuple[Any, Any]:
    """Return the schema of a body, and its first example."""
    body = message["content"]["application/json"]
    return body["schema"], next(iter(body["examples"].values()))["value"]


def exchange(operation: Any, method: str, path: str) -> Iterator[str]:
    """Yield an example of a request, and of its response."""
    status, response = next(iter(operation["responses"].items()))
    link = response["headers"].get("Link", {}).get("example", "")
    target = path.replace("{id}", "1") + "".join(re.findall(r"\?limit=\d+", link))
    yield f"```http\n{method} {target} HTTP/1.1\nAuthorization: Bearer TOKEN"
    if "requestBody" in operation:
        _, sent = content(operation["requestBody"])
        yield f"Content-Type: application/json\n\n{json.dumps(sent)}"
    yield f"```\n\n```http\nHTTP/1.1 {status} {HTTPStatus(int(status)).phrase}"
    if "content" in response:
        yield "Content-Type: application/json"
    for name, header in response["headers"].items():
        yield f"{name}: {header.get('example', '0083ba2fd86206b1-27')}"
    if "content" in response:
        yield "\n" + json.dumps(content(response)[1], ensure_ascii=False, separators=(",", ":"))
    yield "```"


def errors(operation: Any) -> dict[str, str]:
    """Return what each Error of an operation means, by its number."""
    return {
        number: example.get("summary", response["description"])
        for status, response in operation["responses"].items()
        if status[0] in "45"
        for number, example in response["content"]["application/json"]["examples"].items()
    }


def error_table(meanings: dict[str, str]) -> str:
    """Return a table of Errors, with links to what to do."""
    rows = ((f"[{error}](errors.md#error-{error})", text) for error, text in meanings.items())
    return table(["Error", "when"], *rows)


def section(operation: Any, method: str, path: str, common: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of an operation."""
    yield f"## {operation['summary']}\n\n`{method} {path}`: {operation['description']}"
    given = operation.get("parameters", [])
    if given:
        rows = ([f"`{p['name']}`", p["in"], kind(p["schema"]), p["description"]] for p in given)
        yield table(["parameter", "in the", "type", "meaning"], *rows)
    if "requestBody" in operation:
        schema, _ = content(operation["requestBody"])
        yield table(["field of the body", "type", "", "meaning"], *fields(schema))
    yield "\n".join(exchange(operation, method, path))
    own = {error: text for error, text in errors(operation).items() if error not in common}
    yield error_table(own)
    yield "It can also have the [Errors of every operation](#errors-of-every-operation)."


def operations() -> str:
    """Return the sections of all operations, of their common Errors and of their headers."""
    document = make_document([*OPERATIONS])
    paths = resolve(document, document["paths"])
    served = [
        (paths[operation.path][operation.method.lower()], operation.method, operation.path)
        for operation in OPERATIONS.values()
    ]
    common = set.intersection(*({*errors(operation)} for operation, _, _ in served))
    parts = [part for operation in served for part in section(*operation, common)]
    create = served[0][0]
    all_errors = {error: text for error, text in errors(create).items() if error in common}
    parts += ["## Errors of every operation", error_table(all_errors)]
    parts += [create["responses"]["default"]["description"], "## Headers of responses"]
    headers = {
        name: header["description"]
        for operation, _, _ in served
        for response in operation["responses"].values()
        for name, header in response.get("headers", {}).items()
    }
    parts += [table(["header", "meaning"], *((f"`{h}`", text) for h, text in headers.items()))]
    return "\n\n".join(parts) + "\n\n"


def write_operations(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the paragraph after the mark by the operations."""
    if name == "docs/http-reference":
        mark = "<!-- operations -->\n.*?\n\n"
        source[0], count = re.subn(mark, lambda _: operations(), source[0], flags=re.DOTALL)
        if count != 1:
            raise ValueError("docs/http-reference.md: one <!-- operations --> is needed")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the function above."""
    app.connect("source-read", write_operations)
    return {"parallel_read_safe": True}
