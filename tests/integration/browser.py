"""Chromium without a window, told what to do through a pair of pipes."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools import end, unavailable

PROGRAMS = ("chromium", "chromium-headless-shell", "google-chrome")
START_SECONDS = 60.0
"""Generous: the first start of a browser on a busy machine reads 300 MB."""
ANSWER_SECONDS = 30.0


class Screen(NamedTuple):
    width: int
    height: int
    dark: bool = False
    is_phone: bool = False


PHONE = Screen(390, 844, is_phone=True)
DESKTOP = Screen(1280, 900)


class Browser:
    """One page of a browser. Made by `browsing`."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the browser has reported, oldest first."""
        target = self.tell("Target.createTarget", START_SECONDS, url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, seconds: float = ANSWER_SECONDS, **parameters: Any) -> dict[str, Any]:
        """Give a command of the DevTools protocol and return what it answers."""
        message = self._told(method, seconds, **parameters)
        assert "error" not in message, (method, message)
        result: dict[str, Any] = message["result"]
        return result

    def _told(self, method: str, seconds: float, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        command = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            message = self._next(deadline)
            if message.get("id") == number:
                return message
            self.events.append(message)

    def look(self, screen: Screen) -> None:
        """Show what comes on a screen like this."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=screen.width,
            height=screen.height,
            deviceScaleFactor=1,
            mobile=screen.is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if screen.dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        self.events.clear()
        self.tell("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def wait(self, event: str, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until the browser reports this, or has since the last page was opened."""
        deadline = time.monotonic() + seconds
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self._next(deadline))

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives. The page's own policy does not hold for it."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            message = self._told("Runtime.evaluate", ANSWER_SECONDS, expression=expression, returnByValue=True)
            # A page that comes anew by itself may do so just while it is asked.
            if "error" not in message or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert "error" not in message, (expression, message)
        answer = message["result"]
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of what is on the screen, or of the whole page, as PNG."""
        data = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole=whole))
        path.write_bytes(base64.b64decode(data["data"]))

    def asked(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return what the browser found wrong with the page since it was opened, as of its policy."""
        return [
            event["params"]["entry"]["text"]
            for event in self.events
            if event.get("method") == "Log.entryAdded" and "favicon" not in event["params"]["entry"].get("url", "")
        ]

    def _clip(self, *, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"the browser does not answer; it said: {self.events[-3:]}"
            read = os.read(self._answers, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Start a browser with a new profile in this folder, and end it afterwards."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        unavailable("chromium", "apt-get install chromium-headless-shell")
    commands, answers = os.pipe(), os.pipe()
    command = [
        # Bash, since other shells have no word for descriptors from 10 on.
        *("bash", "-c", f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}', program),
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
        *("--remote-debugging-pipe", f"--user-data-dir={profile}"),
    ]
    process = subprocess.Popen(
        command,
        pass_fds=(commands[0], answers[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)},
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser(commands[1], answers[0])
    finally:
        os.close(commands[1])
        end(process)  # and with it the processes that it has started
        os.close(answers[0])
