"""The pages for people in a real browser: they fit a phone, can be read in the dark, and ask nobody else for anything.

STATUS_PICTURES names a folder that keeps the pictures, for whoever wants to look at them.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.browser import DESKTOP, PHONE, Browser, Screen, browsing
from tests.integration.daemon import Daemon

Start = Callable[..., Daemon]

MARKUP = "<img src=x onerror=alert(1)>"
EIGHT = f"""
devices:
  - model: H100-SXM
    count: 2
    load: {{pattern: training}}
    processes: [{{pid: 4101, name: "{MARKUP}", memory_used_bytes: 40.0e+9}}]
  - {{model: A100-SXM, load: {{pattern: inference}}, faults: [{{kind: lost, from_seconds: 2}}]}}
  - {{model: H100-SXM, load: {{pattern: bursts, level: 0.7}}, partitions: [{{profile: 3g.40gb}}]}}
  - {{model: MI300X, count: 2, load: {{pattern: training, level: 0.8}}}}
  - {{model: T4, load: {{pattern: constant, watts: 60}}}}
  - {{model: RX-7900-XT, load: {{pattern: training}}}}
"""
SCENARIOS = {8: EIGHT, 64: "devices: [{model: H100-SXM, count: 64, load: {pattern: training}}]"}
SCREENS = {
    f"{name}-{'dark' if dark else 'light'}": screen._replace(dark=dark)
    for name, screen in (("phone", PHONE), ("desktop", DESKTOP))
    for dark in (False, True)
}
FEW = ("phone-dark", "desktop-light")
_BRIGHTNESS = """
getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 765
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("STATUS_PICTURES", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def serving(start_daemon: Start, tmp_path: Path, count: int) -> Daemon:
    """Start a daemon with so many GPUs, which have all been read and counted."""
    if not count:
        return start_daemon("--provider=nvidia", ready=False)
    scenario = tmp_path / f"{count}.yaml"
    scenario.write_text(SCENARIOS[count])
    daemon = start_daemon(f"--simulate={scenario}")
    daemon.scrape_until(lambda page: len(page.all("gpu_up")) == count and "gpu_energy_joules_total" in page)
    return daemon


def look(browser: Browser, url: str, screen: Screen, picture: Path) -> None:
    """Open a page, take a picture of it, and hold it to what every page is to be on any screen."""
    browser.look(screen)
    browser.open(url)
    browser.picture(picture, whole=True)
    assert picture.stat().st_size > 1_000
    assert browser.value("document.documentElement.scrollWidth") <= screen.width
    brightness = browser.value(_BRIGHTNESS)
    assert brightness < 0.2 if screen.dark else brightness > 0.8
    assert browser.value("document.styleSheets.length") == 1  # its policy lets its own style pass
    assert browser.complaints() == []
    origin = url.partition("//")[2].partition("/")[0]
    assert {asked.partition("//")[2].partition("/")[0] for asked in browser.asked()} == {origin}
    assert browser.value("document.querySelectorAll('script, img, link, iframe, object, embed').length") == 0


@pytest.mark.parametrize("count", [0, 64])
def test_the_status_page_fits_any_screen(
    browser: Browser, start_daemon: Start, tmp_path: Path, pictures: Path, count: int
) -> None:
    daemon = serving(start_daemon, tmp_path, count)
    for name in FEW:
        look(browser, f"{daemon.url}/", SCREENS[name], pictures / f"status-{count}-{name}.png")
        assert _gpus(browser) == count


def test_one_look_tells_of_all_gpus_and_each_has_a_page_that_explains(
    browser: Browser, start_daemon: Start, tmp_path: Path, pictures: Path
) -> None:
    daemon = serving(start_daemon, tmp_path, 8)
    for name, screen in SCREENS.items():
        look(browser, f"{daemon.url}/", screen, pictures / f"status-8-{name}.png")
        assert _gpus(browser) == 8
    for name in FEW:
        look(browser, f"{daemon.url}/device/sim0", SCREENS[name], pictures / f"device-{name}.png")
        text = browser.value("document.body.innerText")
        assert MARKUP in text
        assert "What the ledger made of" in text
    browser.events.clear()
    browser.value("document.querySelector('p a').click()")
    browser.wait("Page.loadEventFired")
    assert browser.value("location.pathname") == "/"
    _comes_anew(browser, daemon.url)


def _comes_anew(browser: Browser, url: str) -> None:
    """Hold the page to come anew by itself, and to stay where one was reading."""
    browser.look(PHONE)
    browser.open(f"{url}/")
    browser.value("window.scrollTo(0, 700)")
    before = _state(browser)
    browser.events.clear()
    browser.wait("Page.loadEventFired")
    deadline = time.monotonic() + 10
    while _state(browser)["scrolled"] != before["scrolled"]:  # it is put back after the page has been laid out
        assert time.monotonic() < deadline
    assert before["scrolled"] == 700
    assert _state(browser)["as_of"] != before["as_of"]


def _gpus(browser: Browser) -> int:
    return int(browser.value("document.querySelectorAll('a[href^=\"./device/\"]').length"))


def _state(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = browser.value("({scrolled: scrollY, as_of: document.querySelector('footer').textContent})")
    return found
