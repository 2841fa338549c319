"""The page of the service, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document
from tests.support.databases import installed
from tests.support.fresh import run
from tests.support.front import nginx
from tests.support.serving import LIMIT, Gunicorn
from tests.support.sites import TOKEN

# The browser must not send requests to other servers.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
# A busy machine needs more than the default of five seconds.
expect.set_options(timeout=LIMIT * 1000)
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium without a window."""
    chromium = installed("chromium", "chromium")
    with sync_playwright() as playwright:
        start = playwright.chromium.launch
        with start(executable_path=chromium, args=FLAGS, timeout=LIMIT * 1000) as browser:
            yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return an empty page of a new visitor."""
    with browser.new_page() as page:
        page.set_default_timeout(LIMIT * 1000)
        yield page


class Visit:
    """A visit to the page. :meth:`check` says whether anything has gone wrong."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.urls: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(f"{message.type} {message.text}"))
        page.goto(url)
        expect(page.get_by_role("heading", name="Plant Store")).to_be_visible()

    def authorise(self) -> None:
        self.page.get_by_role("button", name="Authorize").click()
        self.page.locator(".auth-container input").fill(TOKEN)
        self.page.locator(".auth-btn-wrapper button[type=submit]").click()
        self.page.get_by_role("button", name="Close", exact=True).click()

    def open(self, operation: str, id: str = "") -> Locator:
        block = self.page.locator(f"#operations-plants-{operation}")
        block.locator(".opblock-summary-control").click()
        expect(block.locator(".execute")).to_be_visible()
        if id:
            block.locator("input").fill(id)
        return block

    def execute(self, block: Locator, status: str, body: str) -> None:
        block.locator(".execute").click()
        shown = block.locator(".live-responses-table tr.response")
        expect(shown.locator(".response-col_status")).to_contain_text(status)
        expect(shown.locator(".response-col_description")).to_contain_text(body)

    def check(self, prefix: str) -> None:
        """Check that nothing was sent elsewhere, and that only refused requests were reported."""
        refused = "error Failed to load resource: the server responded with a status of"
        harmless = (refused, "log", "info", "debug")
        assert [error for error in self.errors if not error.startswith(harmless)] == []
        assert [url for url in self.urls if not url.startswith((prefix, "data:"))] == []


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Run the service with all operations behind nginx, with a prefix that nginx removes."""
    with (
        Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_OPERATIONS=",".join(OPERATIONS)) as service,
        nginx(tmp_path, service.port) as port,
    ):
        yield f"http://127.0.0.1:{port}/garden/"
        assert "Traceback" not in service.log


def test_try_each_operation_on_the_page(page: Page, url: str) -> None:
    """A person authorises and tries each operation; no request leaves the machine."""
    page.set_viewport_size({"width": 900, "height": 1200})
    visit = Visit(page, f"{url}docs")
    link = page.get_by_role("link", name="openapi.json")
    expect(link).to_have_attribute("href", f"{url}openapi.json")
    icon = page.locator("link[rel=icon]").evaluate("link => link.href")
    assert page.request.get(icon).headers["content-type"].startswith("image/svg+xml")
    create = visit.open("createPlant")
    visit.execute(create, "401", "40101")
    visit.authorise()
    visit.execute(create, "200", '"name": "Monstera"')
    visit.execute(create, "400", "A plant with this id already exists.")
    visit.execute(visit.open("listPlants"), "200", '"id": 1')
    for name, status, body in (("read", "200", "indoor"), ("update", "200", "Monstera")):
        visit.execute(visit.open(f"{name}Plant", "1"), status, body)
    delete = visit.open("deletePlant", "1")
    visit.execute(delete, "204", "")
    visit.execute(delete, "404", "There is no plant with this id.")
    visit.check(url)
    page.goto(f"{url}openapi.json")
    assert '"servers":[{"url":"."}]' in page.content()


def test_curl_command_of_the_page(page: Page, url: str) -> None:
    """A curl command that is copied from the page runs in a shell that has the token in TOKEN."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit = Visit(page, f"{url}docs")
    visit.authorise()
    visit.execute(visit.open("createPlant"), "200", "Monstera")
    update = visit.open("updatePlant", "1")
    new = {"name": 'Lady\'s "mantle" $TOKEN', "tag": "'Authorization: Bearer $TOKEN'"}
    update.locator("textarea").fill(json.dumps(new))
    visit.execute(update, "200", "mantle")
    update.locator(".curl-command").get_by_role("button").click()
    command = page.evaluate("navigator.clipboard.readText()")
    assert '-H "Authorization: Bearer $TOKEN"' in command
    assert TOKEN not in command
    assert json.loads(run(f"{command} -s", Path(), TOKEN=TOKEN)) == new
    visit.check(url)


# Whether a person sees each part of a text at its place.
IS_VISIBLE = """code => {
    code.scrollIntoView({block: "center"});
    const range = document.createRange();
    range.selectNodeContents(code);
    const lines = [...range.getClientRects()].filter(({width}) => width > 1);
    const isSeen = (x, y) => code.contains(document.elementFromPoint(x, y));
    return lines.length > 3 && lines.every(({left, width, top, bottom}) =>
        [0.1, 0.3, 0.5, 0.7, 0.9].every((part) => isSeen(left + part * width, (top + bottom) / 2)));
}"""


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize(
    ("scheme", "colour"), [("light", "rgba(0, 0, 0, 0)"), ("dark", "rgb(28, 32, 34)")]
)
def test_page_of_each_width_and_colour(
    browser: Browser, url: str, width: int, scheme: Any, colour: str
) -> None:
    """At each width, light and dark, a person reads the message; no token is displayed."""
    viewport: Any = {"width": width, "height": 900}
    with browser.new_page(color_scheme=scheme, viewport=viewport) as page:
        page.set_default_timeout(LIMIT * 1000)
        visit = Visit(page, f"{url}docs")
        visit.authorise()
        visit.execute(visit.open("listPlants"), "200", "")
        block = visit.open("createPlant")
        for status, body in (("200", "Monstera"), ("400", "A plant with this id already exists.")):
            visit.execute(block, status, body)
        assert block.locator(".live-responses-table code").first.evaluate(IS_VISIBLE)
        assert TOKEN not in page.content()
        assert block.evaluate("block => block.clientHeight") < 2800
        block.get_by_role("button", name="The service failed.").click()
        expect(block.get_by_text("Example Value")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        background = "getComputedStyle(document.documentElement).backgroundColor"
        assert page.evaluate(background) == colour
        visit.check(url)


def test_errors_of_the_page_link_to_the_documents(page: Page, url: str) -> None:
    """An Error on the page links to its explanation, if the document knows where it is."""
    document = make_document() | {"externalDocs": {"url": "https://plants.example/errors.html"}}
    page.route("**/openapi.json", lambda route: route.fulfill(json=document))
    visit = Visit(page, f"{url}docs")
    visit.execute(visit.open("createPlant"), "401", "40101")
    link = page.get_by_role("link", name="What 40101 means, and what to do")
    expect(link).to_have_attribute("href", "https://plants.example/errors.html#error-40101")
    visit.check(url)


def test_dialog_of_the_page_with_the_keyboard(page: Page, url: str) -> None:
    """The dialog says what to enter, the Tab key does not leave it, and Escape closes it."""
    visit = Visit(page, f"{url}docs")
    page.get_by_role("button", name="Authorize").click()
    dialog = page.locator(".modal-ux")
    expect(dialog.get_by_text("Enter the token that the operator has given")).to_be_visible()
    expect(dialog.get_by_text("Value:")).to_be_hidden()
    for key in ["Tab"] * 6 + ["Shift+Tab"] * 6:
        page.keyboard.press(key)
        expect(dialog.locator(":focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    visit.check(url)
