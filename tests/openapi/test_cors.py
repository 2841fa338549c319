"""A page of another origin, in a real browser."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.openapi.test_browser import CHROMIUM, browser
from tests.support.front import NGINX, front
from tests.support.readme import recipe
from tests.support.serving import LIMIT, ROOT, Gunicorn
from tests.support.sites import TOKEN

__all__ = ["browser"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(None in {CHROMIUM, NGINX}, reason="apt-get install chromium nginx"),
]

SHOP = "https://shop.example"
# What the page does: it creates a plant twice, and returns what it can read.
CREATE = """
async ([url, token]) => {
    const headers = {"Authorization": `Bearer ${token}`, "Content-Type": "application/json"};
    const read = [];
    for (const _ of [1, 2]) {
        const body = '{"id":1,"name":"Rose"}';
        const response = await fetch(url, {method: "POST", headers, body});
        const id = response.headers.get("X-Request-ID") !== null;
        read.push([response.status, (await response.json()).error, id]);
    }
    return read;
}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """Return the origin of a page."""
    (tmp_path / "index.html").write_text("<title>Shop</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def create(browser: Browser, shop: str, url: str) -> Any:
    """Return what the page reads of the responses, or the reason of the browser."""
    with browser.new_page(ignore_https_errors=True) as page:
        page.set_default_timeout(LIMIT * 1000)
        page.goto(shop)
        return page.evaluate(f"data => ({CREATE})(data).catch(String)", [url, TOKEN])


READ = [[200, None, True], [400, 40004, True]]
FAILED = "TypeError: Failed to fetch"


def test_cors_by_nginx(browser: Browser, shop: str) -> None:
    """A page of another origin creates plants with the four lines of nginx.conf, not without."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    lines = re.findall(r"#(add_header Access-Control-\S+ .*;)$", text, re.M)
    assert len(lines) == 4
    permitted = {f"#{line}": line.replace(SHOP, shop) for line in lines}
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as service:
        with front(service.port) as proxy:
            url = f"https://127.0.0.1:{proxy.port}/garden/plants"
            assert create(browser, shop, url) == FAILED
        with front(service.port, permitted) as proxy:
            url = f"https://127.0.0.1:{proxy.port}/garden/plants"
            assert create(browser, shop, url) == READ


def test_cors_by_a_module(browser: Browser, shop: str, tmp_path: Path) -> None:
    """The module with Flask-Cors lets a page of one other origin create plants, and no other."""
    (tmp_path / "cors.py").write_text(recipe("cors-module").replace(SHOP, shop))
    config = ("-c", "python:plantstore.server.config", "--pythonpath", str(tmp_path), "cors:app")
    with Gunicorn(*config, PLANTSTORE_TOKENS=TOKEN) as service:
        url = f"http://127.0.0.1:{service.port}/plants"
        assert create(browser, shop, url) == READ
        assert create(browser, shop.replace("127.0.0.1", "localhost"), url) == FAILED
