"""Counts the bytecode instructions of a request, by module, and compares them with cost.txt.

    python -m benchmarks.cost [--write]

The counts do not depend on the machine or on its load. They differ between versions of Python:
cost.txt is for RECORDED. With it, the exit status is 1 if a total has changed by more than LIMIT,
up or down; --write then writes the new counts. It needs Python 3.12.

The requests are executed in this process, as a WSGI server calls an application, and the threads
of a store are counted, too. "same head", "X-Request-ID", "nginx", "path" and "in turns" are what
the worker does for the head of a request before that: the head is the same as the last one on its
connection, or differs in this field, in the fields of deploy/nginx.conf, in its path, or is the
same as the one before the last one, which had other fields.
"""

import argparse
import gc
import math
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import count, cycle, pairwise
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from gunicorn.config import Config
from werkzeug.test import EnvironBuilder

from plantstore import Plant, StaticTokens, create_app, create_blueprint, open_store
from plantstore.server import config
from plantstore.server.worker._client import Client
from plantstore.server.worker._heads import environ_of, max_kept, parse
from tests.support.databases import postgresql, sqlite
from tests.support.serving import ROOT

RECORDED = (3, 13)  # The version of Python for which cost.txt is.
LIMIT = 0.03
ROUNDS = 30
FILE = Path(__file__).with_name("cost.txt")
DATABASES = {"SQLite": sqlite, "PostgreSQL": postgresql}
monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none.

_FIELDS = b"Host: plants.example.org\r\nAuthorization: Bearer s3cret\r\n"
_CREATE = b"POST /plants HTTP/1.1\r\n" + _FIELDS + b"Content-Type: application/json\r\n"
_CREATE += b"Content-Length: 44\r\n"
_ID = b"X-Request-ID: %032x\r\n"
#: The heads of the requests of a connection; each %x or %d is another number in each request.
HEADS = {
    "same head": [_CREATE],
    "X-Request-ID": [_CREATE + _ID],
    "nginx": [_CREATE + _ID + b"X-Forwarded-For: 192.0.2.%d\r\nX-Forwarded-Proto: https\r\n"],
    "path": [b"GET /plants/%d HTTP/1.1\r\n" + _FIELDS],
    "in turns": [_CREATE, b"GET /plants/1 HTTP/1.1\r\n" + _FIELDS],
}

Call = Callable[[], object]
Counts = Counter[str]


def fewest(call: Call) -> Counts:
    """Return the instructions of a call, by module: of ROUNDS calls, those of the cheapest one.

    So neither the first calls count, nor what a store does once a second.
    """
    call()  # A store connects. While instructions are counted, this could take too long.
    with counted() as codes:
        rounds = []
        for _ in range(ROUNDS):
            codes.clear()
            call()
            rounds.append(codes.copy())
    modules = Counts()
    for code, number in min(rounds, key=Counter.total).items():
        modules[module_of(code)] += number
    del modules[__name__]
    return modules


@contextmanager
def counted() -> Iterator[Counter[CodeType]]:
    """Count the instructions of all threads in the block.

    A thread runs until it waits: otherwise the counts would depend on the time of a switch.
    """
    codes, event = Counter[CodeType](), monitoring.events.INSTRUCTION

    def note(code: CodeType, _: int) -> None:
        codes[code] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    gc.disable()
    monitoring.use_tool_id(monitoring.PROFILER_ID, __name__)
    monitoring.register_callback(monitoring.PROFILER_ID, event, note)
    monitoring.set_events(monitoring.PROFILER_ID, event)
    try:
        yield codes
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
        gc.enable()
        sys.setswitchinterval(interval)


def module_of(code: CodeType) -> str:
    """Return the name of a module of plantstore, of another package, or "Python"."""
    file = code.co_filename
    if file == __file__:
        return __name__
    if file.startswith(f"{ROOT}/plantstore/"):
        return file.removeprefix(f"{ROOT}/").removesuffix(".py").replace("/", ".")
    package = re.search("-packages/([a-z_]+)", file)
    return package[1] if package else "Python"


def request(app: Flask, path: str, make_body: Callable[[], bytes] = bytes) -> Call:
    """Return a function that sends a request to an application: a POST if it has a body."""
    environ = EnvironBuilder(path, content_type="application/json").get_environ()
    environ["HTTP_AUTHORIZATION"] = "Bearer s3cret"
    environ["wsgi.input_terminated"] = True

    def start_response(status: str, *_: object) -> Callable[[bytes], object]:
        assert status == "200 OK", status
        return bytes

    def send() -> None:
        body = make_body()
        method, length = "POST" if body else "GET", str(len(body))
        of_this = {"REQUEST_METHOD": method, "CONTENT_LENGTH": length, "wsgi.input": BytesIO(body)}
        response: Any = app(environ | of_this, start_response)
        b"".join(response)
        response.close()

    return send


def create(url: str) -> Call:
    """Return a function that creates another plant in a store each time."""
    app, ids = create_app({"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url}), count(1000)
    return request(app, "/plants", lambda: b'{"id":%d,"name":"Monstera","tag":"in"}' % next(ids))


def page() -> Call:
    """Return a function that lists a hundred plants in memory."""
    store = open_store("memory://")
    for id in range(100):
        store.add(Plant(id, "Monstera", "indoor"))
    settings = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_OPERATIONS": "list"}
    return request(create_app(settings, store=store), "/plants?limit=100")


def page_of_site(*, embeds: bool) -> Call:
    """Return a function that reads a page of a host site."""
    site = Flask("site")
    site.add_url_rule("/<text>", "page", lambda text: text)
    if embeds:
        tokens = StaticTokens(["s3cret"])
        garden = create_blueprint(store=open_store("memory://"), verify_token=tokens)
        site.register_blueprint(garden, url_prefix="/garden")
    return request(site, "/rose")


def head(texts: list[bytes]) -> Call:
    """Return a function that lets the worker parse the next head of a connection, in turns."""
    cfg = Config()
    for name in vars(config).keys() & cfg.settings.keys():
        cfg.set(name, getattr(config, name))
    worker = SimpleNamespace(cfg=cfg, needs_threads=True)
    client = Client(socket.socket(), ("192.0.2.1", 40000), ("192.0.2.2", 8000))
    numbers, most, turns = count(100), max_kept(cfg), cycle(texts)

    def parse_next() -> None:
        text = next(turns)
        client.data[:] = text % ((next(numbers),) * text.count(b"%")) + b"\r\n"
        parse(cfg, client, len(client.data), most)
        environ_of(worker, client)
        client.forget_request()

    return parse_next


def requests() -> dict[str, Counts]:
    """Return the instructions of each request."""
    counts = {"memory": fewest(create("memory://"))}
    with ExitStack() as running:
        for name, open_place in DATABASES.items():
            try:
                counts[name] = fewest(create(running.enter_context(open_place()).url))
            except pytest.skip.Exception as missing:
                print(f"Without {name}: {missing}")
    counts["page of 100"] = fewest(page())
    counts["site"] = fewest(page_of_site(embeds=False))
    counts["with plants"] = fewest(page_of_site(embeds=True))
    return counts


def table(counts: dict[str, Counts], changes: dict[str, float]) -> Iterator[str]:
    """Yield the lines of a table: the totals, their changes if there are any, each module."""
    yield row("", counts)
    yield row("total", [f"{column.total():,}" for column in counts.values()])
    if changes:
        yield row("change", [f"{changes[name]:+.1%}" for name in counts])
    for module in sorted(set().union(*counts.values()), key=lambda it: ("." not in it, it)):
        yield row(module, [f"{column[module]:,}" for column in counts.values()])


def row(first: str, cells: Any) -> str:
    """Return a line of a table."""
    return f"{first:<35}" + "".join(f"{cell:>14}" for cell in cells)


def recorded() -> dict[str, int]:
    """Return the totals of cost.txt by their names."""
    lines = FILE.read_text().splitlines()
    cells = [re.split(" {2,}", line.strip()) for line in lines]
    return {
        name: int(total.replace(",", ""))
        for names, totals in pairwise(cells)
        if "total" in totals
        for name, total in zip(names, totals[1:], strict=True)
    }


def main() -> None:
    """Print two tables, or write them, and compare the totals with those that are recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the counts into cost.txt")
    writes = parser.parse_args().write
    if monitoring is None:
        print("The cost of a request: Python 3.12 is needed to count instructions.")
        return
    tables = requests(), {name: fewest(head(texts)) for name, texts in HEADS.items()}
    is_compared = sys.version_info[:2] == RECORDED and not writes
    before = recorded() if is_compared else {}
    changes = {
        name: column.total() / before[name] - 1 if name in before else math.inf
        for counts in tables
        for name, column in counts.items()
        if is_compared
    }
    text = "\n\n".join("\n".join(line.rstrip() for line in table(it, changes)) for it in tables)
    print(text)
    if writes:
        FILE.write_text(text + "\n")
    if any(abs(change) > LIMIT for change in changes.values()):
        sys.exit(f"A total has changed by more than {LIMIT:.0%}. Is it meant? Then use --write.")


if __name__ == "__main__":
    main()
