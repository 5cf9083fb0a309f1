"""One server and one browser for all tests of the page."""

import json
import shutil
import urllib.parse
import urllib.request

import pytest

from tests.service.test_server import ROOT, Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync""".split()
SCREENSHOTS = ROOT / "test-artifacts" / "inspector"
"""Kept, for people to look at."""

PATIENCE_MS = 120_000

# What a page reports about itself, before any script of its own runs.
_WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
    violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


@pytest.fixture(scope="module")
def address():
    server = Server("-m", ROOT / "model/pretrained/en-fr")
    server.wait_until_ready()
    yield server.address
    server.stop()


@pytest.fixture(scope="module")  # not longer: while Playwright is there its event loop runs, and no other can
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page, and all that went wrong on it."""

    def __init__(self, browser, address, **options):
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(_WATCH)
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        # Nothing but the server itself can be reached.
        self.context.route(lambda url: not url.startswith((address, "blob:", "data:")), lambda route: route.abort())

    def open(self, fragment="", wait=True, **state):
        self.page.goto(f"{self.address}/{fragment or ('#' + urllib.parse.urlencode(state) if state else '')}")
        if wait:
            self.ready()
        return self.page

    def ready(self):
        """The threads are drawn and the station has its numbers."""
        self.page.wait_for_selector("#web:not([aria-busy]) .word")
        self.page.wait_for_selector("#stage:not([aria-busy])")
        self.page.wait_for_selector("#station .parts:not([aria-busy]):not(:empty)")
        self.page.wait_for_selector("#station .checks li")

    def go(self, **state):
        """Another state on the same page, without loading it again."""
        self.page.evaluate(
            "fragment => { history.pushState(null, '', fragment); dispatchEvent(new PopStateEvent('popstate')); }",
            "#" + urllib.parse.urlencode(state),
        )
        self.ready()

    def shot(self, name, full=False):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full)

    def close(self):
        reports = self.page.evaluate("window.violations")
        elsewhere = [url for url in self.requests if not url.startswith((self.address, "blob:", "data:"))]
        self.context.close()
        assert (self.errors, reports, elsewhere) == ([], [], [])


@pytest.fixture
def visit(browser, address):
    """Makes visits; afterwards none may have seen an error, a report of the policy, or a request to elsewhere."""
    made = []

    def make(**options):
        made.append(Visit(browser, address, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def shared(browser, address):
    """One visit for all tests that only look; it has shown the sentence of the seeds."""
    visit = Visit(browser, address)
    visit.open()
    yield visit
    visit.close()


@pytest.fixture(scope="module")
def ask(address):
    """Ask the API beside the page."""

    def post(path, body):
        request = urllib.request.Request(
            address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_MS / 1000) as response:
            return json.loads(response.read())

    return post
