"""The console in headless Chromium, at full size: no error, no serious finding of axe-core, pages within their size."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from moldau.protocol.record_builder import Record, build_batch
from tests.support.filled_console import PATHS, Filled, filled_console

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.processes, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]

PAGE_SIZE_MAX: Final = 300_000
AXE: Final = Path(axe.__file__).with_name("axe.min.js")


@pytest.fixture(scope="module")
def node() -> Iterator[Filled]:
    with filled_console() as filled:
        yield filled


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def watched(context: Any, errors: list[str]) -> Any:
    """A page whose errors are collected."""
    page = context.new_page()
    page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "requestfailed",
        lambda request: errors.append(request.url) if not re.search("/(tail|search)[?]?", request.url) else None,
    )
    return page


def test_every_page_is_small_and_without_an_error(node: Filled, browser: Any) -> None:
    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    for path in PATHS:
        response = page.goto(node.console + path)
        assert response.status == 200, path
        assert len(response.body()) <= PAGE_SIZE_MAX, path
        assert page.locator("h1").count() == 1
    context.close()
    assert errors == []


def test_a_record_is_found_by_a_field_with_the_keyboard(node: Filled, browser: Any) -> None:
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = watched(context, errors)
    page.goto(f"{node.console}/topics/topic-0000/records?limit=5")
    page.locator("input[name=field]").fill("paid=true")
    page.locator("#search").focus()
    page.keyboard.press("Enter")
    page.locator("#search-state", has_text=": ").wait_for()
    assert "5 found" in page.inner_text("#search-state")
    rows = page.locator("#records tbody tr")
    assert rows.count() == 5
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("input[name=field]").fill("paid=false")
    page.locator("#search").click()
    page.locator("#search-state", has_text="all was looked at").wait_for()
    assert rows.count() == 0
    context.close()
    assert errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_finding(node: Filled, browser: Any, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    for path in PATHS:
        page.goto(node.console + path)
        page.add_script_tag(content=AXE.read_text("utf-8"))
        found = page.evaluate("axe.run().then((result) => result.violations)")
        serious = [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
    context.close()


def test_the_live_tail_of_5000_records_a_second_shows_the_newest_and_ends_where_it_is_told(
    node: Filled, browser: Any
) -> None:
    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    page.goto(f"{node.console}/topics/topic-0001/records")
    page.click("#follow")

    async def produce() -> None:
        client = await node.connect()
        began = time.monotonic()
        for turn in range(150):
            now_ms = time.time_ns() // 1_000_000
            records = [Record(value=f"{turn}-{at}".encode(), timestamp=now_ms) for at in range(100)]
            assert (await client.produce("topic-0001", build_batch(records))).error_code == 0
            await asyncio.sleep(max(began + turn / 50 - time.monotonic(), 0))
        client.close()

    run_beside(produce)
    page.locator("#records tbody tr", has_text="149-99").first.wait_for(timeout=20_000)
    assert page.locator("#records tbody tr").count() <= 500
    page.click("#follow")
    assert page.locator("#follow").get_attribute("aria-pressed") == "false"
    context.close()
    assert errors == []


@pytest.mark.parametrize("path", ["/groups", "/topics", "/topics/topic-0000/records"])
def test_on_a_phone_names_are_whole_and_numbers_and_values_on_the_screen(node: Filled, browser: Any, path: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(node.console + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    ends = page.evaluate(
        "[...document.querySelectorAll('main table tr:first-child :is(th, td)')]"
        ".map((each) => each.getBoundingClientRect().right)"
    )
    assert max(ends) <= 390
    heights = page.evaluate(
        "[...document.querySelectorAll('main table tbody tr')].map((each) => each.getBoundingClientRect().height)"
    )
    assert max(heights) < 100
    page.close()


def test_a_record_is_one_line_and_whole_on_a_click(node: Filled, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 844})
    page.goto(f"{node.console}/topics/topic-0000/records")
    row = page.locator("#records tbody tr").first
    before = row.bounding_box()["height"]
    assert before < 45
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    assert row.bounding_box()["height"] > before
    page.close()


def run_beside(work: Any) -> None:
    """Run a coroutine in a thread of its own: the thread of the test has playwright's loop."""
    import threading

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


def test_a_thousand_idle_connections_disturb_no_probe_and_no_client(node: Filled) -> None:
    idle = []
    for number in range(1_000):
        made = socket.create_connection(("127.0.0.1", node.port), timeout=5)
        if number % 2:
            made.sendall(b"GET /topics HTTP/1.1\r\nHost: lo")
        idle.append(made)

    async def works() -> None:
        client = await node.connect()
        began = time.monotonic()
        for _ in range(20):
            assert (await client.produce("topic-0002", build_batch([Record(value=b"v", timestamp=1)]))).error_code == 0
        assert time.monotonic() - began < 5
        client.close()

    try:
        for path in ("/healthz", "/readyz", "/metrics", "/topics?format=json"):
            with urlopen(node.console + path, timeout=5) as answer:
                assert answer.status == 200
        run_beside(works)
        assert json.loads(urlopen(f"{node.console}/?format=json", timeout=5).read())["problems"] == []
    finally:
        for each in idle:
            each.close()


def test_a_record_of_a_stranger_runs_nothing(node: Filled, browser: Any) -> None:
    hostile = b"<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"

    async def produce() -> None:
        client = await node.connect()
        record = Record(key=hostile, value=hostile, timestamp=time.time_ns() // 1_000_000, headers=(("h", hostile),))
        assert (await client.produce("topic-0003", build_batch([record]))).error_code == 0
        client.close()

    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    page.goto(f"{node.console}/topics/topic-0003/records")
    page.click("#follow")
    page.wait_for_timeout(1_000)
    run_beside(produce)
    page.locator("#records tbody tr", has_text="onerror").wait_for(timeout=20_000)
    page.reload()
    assert page.locator("#records tbody tr").count() == 1
    assert page.title().startswith("Records of topic-0003")
    assert page.locator("#records img, #records script").count() == 0
    context.close()
    assert errors == []


def test_a_form_is_taken_from_a_browser(node: Filled, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{node.console}/topics")
    page.locator("summary", has_text="Create a topic").click()
    page.fill("input[name=name]", "made-by-hand")
    page.locator("form", has=page.locator("input[name=replicas]")).locator("button").click()
    page.wait_for_url("**/topics/made-by-hand")
    assert page.locator("h1").inner_text() == "Topic made-by-hand"
    context.close()


def test_on_a_phone_a_long_name_and_the_forms_are_within_the_page(node: Filled, browser: Any) -> None:
    name = "shop.checkout." + "x" * 235

    async def create() -> None:
        client = await node.connect()
        await client.create(name)

    run_beside(create)
    page = browser.new_page(viewport={"width": 390, "height": 844})
    for path in ("", "/records", "/0/producers"):
        page.goto(f"{node.console}/topics/{name}{path}")
        outside = page.evaluate(
            "[...document.querySelectorAll('main :is(p, a, form, label, input, textarea, button)')]"
            ".filter((each) => !each.closest('table') && each.getBoundingClientRect().right > 390)"
            ".map((each) => each.outerHTML)"
        )
        assert outside == [], path
    page.close()
