"""The step docs runs this file after it has built the site."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from plantstore.errors import ERRORS

SITE = Path(__file__).parents[1] / "build" / "docs"
INDEX = SITE / "searchindex.js"
# What the search of Sphinx needs of a browser.
BROWSER = """
globalThis.window = globalThis;
globalThis.document = { getElementById: () => ({ children: [] }) };
globalThis.SPHINX_HIGHLIGHT_ENABLED = false;
globalThis._ready = () => undefined;
globalThis._ = (text) => text;
"""
FIND = """
const found = (query) => Search._performSearch(...Search._parseQuery(query)).reverse();
const pages = (query) => found(query).map(([page]) => page);
"""
# Words that readers search for, by the page that answers them.
WORDS = {
    "docs/http-reference": "pagination, how to paginate, cursor, filter, search by tag,"
    " find by name, idempotent, Idempotency-Key, bulk insert, parallel, upsert, partial update,"
    " ETag, UUID, emoji, race condition, unknown fields",
    "docs/quick-start": "Java client, getting started, BigInt",
    "docs/errors": "retry after timeout, exponential backoff, exactly once, payload too large, 409",
    "docs/deploy": "public internet, rolling upgrade, rollback, Docker Compose, HTTPS,"
    " zero downtime, drain, DATABASE_URL, Caddy, Kubernetes, SSL, reverse proxy, Let's Encrypt",
    "docs/settings": "environment variable, configuration",
    "docs/tokens": "leaked token, stolen token, revoke a token, rotate token, API key, basic auth",
    "docs/identity-provider": "Keycloak, Auth0, JWKS, OpenID Connect, Entra",
    "docs/durability": "Postgres, data loss, disk full, MongoDB, connection string,"
    " connection pool size, power failure",
    "docs/backup": "pg_dump, point in time recovery, disaster recovery",
    "docs/traces": "OpenTelemetry, Sentry, Jaeger, trace id, error tracking",
    "docs/operating": "healthcheck, liveness, Kubernetes probe, Prometheus,"
    " expose /docs, certificate expired, log level, JSON logs, Swagger UI, audit log, X-Request-ID,"
    " hot reload, log to file, subpath",
    "docs/troubleshooting": "stack trace, 502, connection refused, does not start",
    "docs/many-machines": "HAProxy, high availability, load balancer, failover, scale,"
    " Patroni, etcd, too many connections, stale read",
    "docs/command-line": "CSV import, Excel, migrate from SQLite to Postgres",
    "docs/servers": "uWSGI, Waitress, WSGI server, mod_wsgi, Hypercorn",
    "docs/embedding": "existing application, uv, Poetry",
    "docs/recipes-database": "Alembic, database is locked, connection pool",
    "docs/recipes-clients": "CORS, rate limit, throttling, OAuth, JWT, single sign on, CSRF",
    "docs/recipes-pages": "webhook, events, notification, HTML form, Celery",
    "docs/recipes-rare": "trailing slash, multi tenant, subdomain",
    "docs/testing": "pytest-flask, unit tests",
    "docs/stores": "plugin, custom store, Redis store",
    "benchmarks/README": "performance, requests per second, memory usage",
    "SECURITY": "denial of service, slowloris, vulnerability",
}
pytestmark = pytest.mark.skipif(not INDEX.exists(), reason="tox -e docs")


def test_search_finds_the_errors() -> None:
    """The search finds the heading of each error by its number. Sphinx ignores other numbers."""
    (text,) = re.findall(r"^Search\.setIndex\((.*)\)", INDEX.read_text())
    index = json.loads(text)
    for number in map(str, ERRORS):
        found = {(index["docnames"][page], id) for page, id, _ in index["indexentries"][number]}
        assert ("docs/errors", f"error-{number}") in found


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs")
def test_search_knows_the_words_of_readers() -> None:
    """The page that answers a reader is among the first three that the search finds."""
    answers = {words: page for page, line in WORDS.items() for words in line.split(", ")}
    found = search(*answers)
    missed = [words for words, page in answers.items() if page not in found[words][:3]]
    assert {words: found[words][:3] for words in missed} == {}


def search(*queries: str) -> dict[str, list[str]]:
    """Return the pages that the search of the site finds, by query. The best one is the first."""
    scripts = [SITE / "_static" / "language_data.js", SITE / "_static" / "searchtools.js", INDEX]
    show = f"console.log(JSON.stringify({json.dumps(queries)}.map(pages)))"
    program = ";\n".join([BROWSER, *(script.read_text() for script in scripts), FIND, show])
    node = subprocess.run(
        ["node", "-"], input=program, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(queries, json.loads(node.stdout), strict=True))
