"""What reaches the socket of a service manager."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.systemd import MAX_STATUS, SEND_SECONDS, Systemd
from tests.notify import Manager, listening

OWN = 4711


def systemd(environment: dict[str, str]) -> Systemd:
    return Systemd(environment, OWN, clock=lambda: 12.5)


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    with listening(str(tmp_path / "notify") if request.param == "file" else f"@gpu-exporter{tmp_path}") as made:
        yield made


def test_each_message_is_as_the_protocol_wants_it(manager: Manager) -> None:
    told = systemd({"NOTIFY_SOCKET": manager.name})
    heard = []
    for tell in (told.ready, told.reloading, told.ping, told.stopping):
        tell()
        heard.append(manager.heard())
    assert heard == ["READY=1", "RELOADING=1\nMONOTONIC_USEC=12500000", "WATCHDOG=1", "STOPPING=1"]


def test_a_status_is_one_line_and_is_told_once(manager: Manager) -> None:
    told = systemd({"NOTIFY_SOCKET": manager.name})
    for text in ("8 of 8", "8 of 8", "a\nREADY=1\ud800", "x" * 10_000):
        told.status(text)
    assert [manager.heard() for _ in range(3)] == [
        "STATUS=8 of 8",
        r"STATUS=a\nREADY=1\ud800",
        f"STATUS={'x' * MAX_STATUS}",
    ]


def test_the_variables_are_taken_from_those_that_come_after_us() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(OWN), "HOME": "/"}
    systemd(environment)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("wanted", "pid", "seconds"),
    [
        ("3000000", str(OWN), 3.0),
        ("500000", None, 0.5),
        ("3000000", "1", None),
        ("0", None, None),
        ("", None, None),
        ("-1", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_pings_are_wanted_of_the_process_that_is_named(
    wanted: str | None, pid: str | None, seconds: float | None
) -> None:
    given = {"WATCHDOG_USEC": wanted, "WATCHDOG_PID": pid}
    assert systemd({name: value for name, value in given.items() if value is not None}).watchdog_seconds == seconds


@pytest.mark.parametrize("name", [None, "", "vsock:2:1234", "notify"])
def test_without_a_manager_that_can_be_reached_nothing_is_said(name: str | None) -> None:
    told = systemd({} if name is None else {"NOTIFY_SOCKET": name})
    told.ready()
    told.status("8 of 8")


def test_a_manager_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    for _ in range(3):
        told.ping()
    assert [record.message for record in caplog.records] == ["systemd cannot be told how things are"]


def test_a_manager_that_does_not_keep_up_holds_nothing_up_and_is_told_when_it_does(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    told = systemd({"NOTIFY_SOCKET": manager.name})
    while not caplog.records:  # the kernel keeps so many messages, and no more
        told.ping()
    began = time.monotonic()
    for number in range(20):
        told.ping()
        told.status(f"{number}")
    assert time.monotonic() - began < SEND_SECONDS
    while (message := manager.heard(0)) is not None:
        assert message == "WATCHDOG=1"
    told.status("19")
    assert manager.heard() == "STATUS=19"


def test_a_status_that_was_not_heard_is_told_again(tmp_path: Path) -> None:
    told = systemd({"NOTIFY_SOCKET": str(tmp_path / "late")})
    told.status("8 of 8")
    with listening(str(tmp_path / "late")) as manager:
        told.status("8 of 8")
        assert manager.heard() == "STATUS=8 of 8"
