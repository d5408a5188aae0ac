"""The page in a real browser: it draws its charts, asks for nothing, fits a telephone, and works from the keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from isorun.reports.build import render, write
from isorun.reports.markdown import LINES

from ..fakes import fake_run
from .large import large_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
BINARY = next((path for name in BROWSERS if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BINARY is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed")
CHARTS = 9  # six models forward, three of them also step by step
DRAWN = f"() => document.querySelectorAll('.chart svg').length === {CHARTS}"
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BINARY, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(fake_run(), tmp_path_factory.mktemp("report")).as_uri()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def label_colours(page: Page) -> set[str]:
    script = "[...document.querySelectorAll('.chart .role-axis-label text')].map((text) => text.getAttribute('fill'))"
    return set(page.evaluate(script))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_without_an_error_or_a_request(page: Page, address: str, scheme: str) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    page.wait_for_function(DRAWN)
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert page.locator(".chart svg path").count() > 10 * CHARTS


def test_charts_follow_the_colour_scheme(page: Page, address: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.wait_for_function(DRAWN)
    light = label_colours(page)
    page.emulate_media(color_scheme="dark")
    changed = (
        "(light) => ![...document.querySelectorAll('.chart text')].some((t) => light.includes(t.getAttribute('fill')))"
    )
    page.wait_for_function(changed, arg=sorted(light))
    page.wait_for_function(DRAWN)
    assert len(light) == 1
    assert len(label_colours(page)) == 1


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_body_never_overflows(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address)
    page.wait_for_function(DRAWN)
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('.chart svg')].every((s) => s.clientWidth <= innerWidth)")


def test_the_keyboard_reaches_and_sorts_a_table(page: Page, address: str) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    header = page.locator("#summary thead th", has_text="ort-cpu: speed over torch")
    values = "[...document.querySelectorAll('#summary tbody td:nth-child(7)')].map((td) => Number(td.dataset.value))"
    before = page.evaluate(values)
    header.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(values) == sorted(before) != before
    page.keyboard.press("Space")
    assert page.evaluate(values) == sorted(before, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"


def test_hostile_names_do_not_run(page: Page, tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    run = fake_run()
    measurements = tuple(replace(m, case=replace(m.case, model=attack + m.case.model)) for m in run.measurements)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(write(replace(run, measurements=measurements), tmp_path).as_uri())
    page.wait_for_function(DRAWN)
    assert dialogs == []
    assert attack in page.locator("#summary tbody th").first.inner_text()
    assert page.locator("img").count() == 0


def test_without_javascript_the_tables_are_there(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#summary tbody tr").count() == CHARTS
    assert page.locator(".noscript").is_visible()
    assert page.locator(".card").count() == 6
    assert page.locator("#filters").is_hidden()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, tmp_path: Path, scheme: str) -> None:
    run = fake_run()  # two models are all kinds of parts: right and wrong, timed and not
    few = tuple(m for m in run.measurements if m.case.model in ("gpt2", "mistral-7b"))
    page.emulate_media(color_scheme=scheme)
    page.goto(write(replace(run, measurements=few), tmp_path).as_uri())
    page.wait_for_function("() => document.querySelectorAll('.chart svg').length === 4")
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    found = [(rule["id"], rule["nodes"][0]["target"]) for rule in violations if rule["impact"] in SERIOUS]
    assert found == []


def test_the_filters_choose_models_and_phases(page: Page, address: str) -> None:
    page.goto(address)
    page.select_option("select[name=model]", "gpt2 @ small")
    assert page.locator(".card:visible h3").all_inner_texts() == ["gpt2 @ small"]
    assert page.locator("figure:visible figcaption").all_inner_texts() == [
        "gpt2 @ small, forward",
        "gpt2 @ small, decode step",
    ]
    assert page.locator("#summary tbody tr:visible").count() == 2
    assert page.locator("#shown").inner_text() == "2 of 9 model × phase shown"
    page.select_option("select[name=phase]", "forward")
    assert page.locator("figure:visible").count() == 1
    page.select_option("select[name=model]", "")
    page.select_option("select[name=phase]", "")
    assert page.locator(".card:visible").count() == 6


def test_a_runtime_can_be_taken_out_of_the_charts(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function(DRAWN)
    marks = "document.querySelectorAll('.chart svg .mark-symbol path').length"
    before = page.evaluate(marks)
    page.get_by_role("checkbox", name="torch").uncheck()
    page.wait_for_function(f"() => {marks} < {before}")
    torch = sum(m.status == "ok" and m.case.runtime == "torch" for m in fake_run().measurements)
    assert page.evaluate(marks) == before - torch
    page.get_by_role("checkbox", name="torch").check()
    page.wait_for_function(f"() => {marks} === {before}")


def test_an_answer_leads_to_its_evidence(page: Page, address: str) -> None:
    page.goto(address)
    links = page.locator(".card a.head")
    targets = links.evaluate_all("(all) => all.map((link) => document.querySelector(link.getAttribute('href'))?.id)")
    assert len(targets) > 30
    assert None not in targets
    card = page.locator(".card", has_text="bert-base")
    card.get_by_role("link", name="ort-cpu").click()
    row = page.locator("tr:target")
    assert "bert-base @ small" in row.inner_text()
    assert row.bounding_box() is not None


def test_the_data_is_saved_from_the_page(page: Page, address: str) -> None:
    page.goto(address)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="measurements.csv").click()
    assert waiting.value.suggested_filename == "measurements.csv"
    assert waiting.value.path().read_bytes() == render(fake_run(), "csv")


def test_five_thousand_records_open_at_once(page: Page, tmp_path: Path) -> None:
    written = write(large_run(), tmp_path)
    assert written.stat().st_size < 3_000_000
    assert len((tmp_path / "report.md").read_text().splitlines()) <= LINES
    page.goto(written.as_uri())
    shown_ms = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert shown_ms < 5000  # a second on an idle machine
    page.goto(f"{written.as_uri()}#latency-g20")  # a row of a table that is still folded and compressed
    page.reload()
    page.wait_for_selector("#latency-g20")
    assert "model-10 @ small" in page.locator("#latency-g20").inner_text()
