"""The report page in a browser: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from edgewise.report.html import write_report

EVIL = "<script>document.title='broken'</script>"
N_ROWS = 12


def write_run(folder: Path) -> None:
    """Two rings of six rows, bridged by an improbable edge between the rows 0 and 6."""
    rows = range(N_ROWS)
    name = [f"{EVIL}{row}" for row in rows]
    second = [row >= 6 for row in rows]
    roles = ["train", "validation", "early_stopping", "test", "test", ""] * 2
    sure = [0.55 + 0.03 * row for row in rows]
    first = [1 - sure[row] if second[row] else sure[row] for row in rows]
    classes = (EVIL, "<b>yes</b>")
    frame = pd.DataFrame(
        {
            "id": name,
            "role": roles,
            "label": [
                classes[code] if role else "" for code, role in zip(second, roles, strict=True)
            ],
            "predicted": [classes[code] for code in second],
            f"probability_{EVIL}": first,
            "probability_<b>yes</b>": [1 - p for p in first],
        }
    )
    frame.to_csv(folder / "predictions.csv", index=False)
    ends = [(6 * ring + i, 6 * ring + (i + 1) % 6, 0.9) for ring in (0, 1) for i in range(6)]
    edges = pd.DataFrame([*ends, (0, 6, 0.25)], columns=["source", "target", "probability"])
    for end in ("source", "target"):
        edges[end] = [name[row] for row in edges[end]]
    edges.to_csv(folder / "edges.csv", index=False)
    metrics = {"dataset": EVIL, "best_iteration": 1, "warnings": [EVIL], "expected_edges": 12.25}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    history = {"iteration": 1, "validation_loss": 0.4, "train_loss": 0.2, "expected_edges": 12.0}
    (folder / "log.jsonl").write_text("\n".join([json.dumps(history), json.dumps(history)]))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs a browser: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    started = webdriver.Chrome(options=options, service=service)
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The page on a window of usual size; whatever the test does, no error may come of it."""
    write_run(tmp_path)
    write_report(tmp_path, tmp_path / "report.html")
    resize(browser, 1200)
    browser.get((tmp_path / "report.html").as_uri())
    let_it_draw(browser)
    yield browser
    assert browser.get_log("browser") == []


def resize(browser: Any, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def let_it_draw(browser: Any) -> None:
    """Two frames: what is of a new size gets to know it in the first one."""
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


def text(page: Any, selector: str) -> str:
    found: str = page.execute_script(
        "return document.querySelector(arguments[0]).textContent", selector
    )
    return found


def chosen(page: Any) -> str | None:
    """The id of the node that is chosen, as the graph has it."""
    found: str | None = page.execute_script(
        "return document.getElementById('graph').dataset.chosen || null"
    )
    return found


def point_at(page: Any, node: int, *, click: bool) -> None:
    """Move the mouse to a node, by its place in the window, and perhaps press it there."""
    script = "document.getElementById('graph').scrollIntoView({block: 'center'});"
    x, y = page.execute_script(script + "return window.edgewise.position(arguments[0])", node)
    kinds = ["mouseMoved", "mousePressed", "mouseReleased"] if click else ["mouseMoved"]
    for kind in kinds:
        event = {"type": kind, "x": x, "y": y}
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        page.execute_cdp_cmd("Input.dispatchMouseEvent", {**event, **button})


def press(page: Any, key: str, code: int) -> None:
    for kind in ("rawKeyDown", "keyUp"):
        event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
        page.execute_cdp_cmd("Input.dispatchKeyEvent", event)


def test_what_data_says_is_shown_as_text(page: Any) -> None:
    assert page.title == f"{EVIL} – Edgewise report"
    assert text(page, "#name") == EVIL
    assert EVIL in text(page, "#warning-list")
    assert EVIL in text(page, "#legend")
    assert f"{EVIL}0" in text(page, "#unsure") or f"{EVIL}3" in text(page, "#unsure")
    assert page.execute_script("return document.querySelectorAll('script, b').length") == 2


def test_a_click_on_a_node_shows_its_edges(page: Any) -> None:
    assert chosen(page) is None
    point_at(page, 0, click=True)
    assert chosen(page) == f"{EVIL}0"
    assert text(page, "#chosen-id") == f"{EVIL}0"
    rows = page.execute_script(
        "return [...document.querySelectorAll('#neighbours tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert sorted(rows[:2]) == [[f"{EVIL}1", EVIL, "90.0%"], [f"{EVIL}5", EVIL, "90.0%"]]
    assert rows[2] == [f"{EVIL}6", "<b>yes</b>", "25.0%"]
    titles = page.execute_script(
        "return [...document.querySelectorAll('#histogram title')].map(title => title.textContent)"
    )
    assert titles == ["<b>yes</b>: 1", f"{EVIL}: 2"]


def test_the_tip_says_which_row_the_mouse_is_on(page: Any) -> None:
    point_at(page, 7, click=False)
    assert text(page, "#tip strong") == f"{EVIL}7"
    assert "<b>yes</b>: 76.0%" in text(page, "#tip")
    assert chosen(page) is None


def test_a_row_is_found_and_chosen_by_keyboard(page: Any) -> None:
    page.execute_script("document.getElementById('search').focus()")
    page.execute_cdp_cmd("Input.insertText", {"text": "</script>11"})
    assert text(page, "#found-note") == "1 found"
    press(page, "ArrowDown", 40)
    assert page.execute_script("return document.activeElement.textContent") == f"{EVIL}11"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) == "solid"
    page.execute_script("document.activeElement.click()")
    assert chosen(page) == f"{EVIL}11"
    page.execute_script("document.getElementById('graph').focus()")
    press(page, "Escape", 27)
    assert chosen(page) is None


def test_keys_and_buttons_move_the_graph(page: Any) -> None:
    where = "return window.edgewise.position(0)"
    before = page.execute_script(where)
    page.execute_script("document.getElementById('graph').focus({preventScroll: true})")
    press(page, "ArrowLeft", 37)
    after = page.execute_script(where)
    assert after == pytest.approx([before[0] + 40, before[1]])
    page.execute_script("document.getElementById('zoom-in').click()")
    assert page.execute_script(where) != pytest.approx(after)
    press(page, "0", 48)
    assert page.execute_script(where) == pytest.approx(before)


def test_the_threshold_says_how_many_edges_it_leaves(page: Any) -> None:
    page.execute_script(
        "const input = document.getElementById('threshold'); input.value = arguments[0];"
        "input.dispatchEvent(new Event('input'))",
        0.5,
    )
    assert text(page, "#shown") == "12 edges drawn"


def test_on_a_phone_nothing_is_wider_than_the_window(page: Any) -> None:
    resize(page, 360)
    let_it_draw(page)
    point_at(page, 0, click=True)
    assert chosen(page) == f"{EVIL}0"
    assert page.execute_script("return document.documentElement.scrollWidth") == 360


def test_dark_mode_follows_the_system(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours.append(
            page.execute_script("return getComputedStyle(document.body).backgroundColor")
        )
    assert colours == ["rgb(246, 246, 243)", "rgb(20, 23, 28)"]
