"""A provider that misbehaves on command: what a test writes into its control file happens at the next call.

The scenario of the request is the path of the control file, JSON: `devices` (their keys), `delay` (seconds of each
call), `calls` (in one read), `kind` (of power), `open` and `enumerate` (what happens then) and `at` (key -> what
happens when it is read): one of `HAPPENINGS`, or for a device `lost`, or `stale`: lost until the library is opened
anew, or `broken`: every reading breaks. Besides: `processes` (key -> what happens when its processes are listed),
`close` (what happens then), `hold` (path of a file that is open while the library is), `grow` (bytes that each read
keeps) and `leak` (descriptors that each read keeps). Beside the control file lies how often energy was read, with the
suffix `.reads`, and which processes the library has started, with `.started`.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.protocol import OpenContext, Opened, ProviderError
from exporter.supervision import frames

FLOOD_BYTES = 50_000_000
_KEPT: list[object] = []
_CONTROL: list[Path] = []


def _hang() -> None:
    # Like a call that a driver never returns from: no signal but SIGKILL ends it.
    while True:
        time.sleep(60)


def _abort() -> None:
    ctypes.string_at(0)


def _exit() -> None:
    ctypes.CDLL(None).exit(3)


def _raise() -> None:
    raise KeyError("libunruly.so")


def _go() -> None:
    raise ProviderError("the driver is not loaded")


def _flood() -> None:
    line = b"the library is talkative\n" * 1000
    for descriptor in (1, 2):
        written = 0
        while written < FLOOD_BYTES // 2:
            written += os.write(descriptor, line)


def _garble() -> None:
    # Like a library that writes through a descriptor which it believes to be its own.
    os.write(_report_pipe(), b"\xff" * 64)


def _shut() -> None:
    # Like a library that closes descriptors which it believes to be its own, and goes on.
    os.close(_report_pipe())
    _hang()


def _balloon() -> None:
    _KEPT.append(bytearray(os.urandom(1)) * (160 * 2**20))
    _hang()


def _breed() -> None:
    # Like a library that starts a helper, which keeps all descriptors and outlives whoever started it.
    child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    started = _CONTROL[0].with_suffix(".started")
    with started.open("a") as file:
        file.write(f"{child.pid}\n")


def _breed_and_hang() -> None:
    _breed()
    _hang()


def _breed_and_exit() -> None:
    _breed()
    _exit()


def _babble() -> None:
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        os.write(_report_pipe(), frames.encode(frames.FreshDone(0)) * 500)


HAPPENINGS: Mapping[str, Callable[[], None]] = {
    "hang": _hang,
    "abort": _abort,
    "sigabrt": os.abort,
    "breed and exit": _breed_and_exit,
    "exit": _exit,
    "raise": _raise,
    "gone": _go,
    "flood": _flood,
    "garble": _garble,
    "babble": _babble,
    "shut": _shut,
    "balloon": _balloon,
    "breed and hang": _breed_and_hang,
}


def _happen(what: str | None) -> None:
    if what is not None:
        HAPPENINGS[what]()


def _report_pipe() -> int:
    return int(sys.argv[2])


class Unruly:
    def __init__(self, control: Path, between_calls: Callable[[], None]) -> None:
        self._control = control
        self._between_calls = between_calls
        self._stamp = 0
        self._orders: dict[str, Any] = {}
        self._reads: dict[str, int] = {}
        self._stale: set[str] = set()
        held = self.orders().get("hold")
        self._held = None if held is None else os.open(held, os.O_RDONLY)

    def orders(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            stamp = self._control.stat().st_mtime_ns
            if stamp != self._stamp:
                self._orders, self._stamp = json.loads(self._control.read_text()), stamp
        return self._orders

    def devices(self) -> tuple[Device, ...]:
        self._between_calls()
        _happen(self.orders().get("enumerate"))
        return tuple(Device(vendor="test", key=key, model="Unruly") for key in self.orders()["devices"])

    def read(self, device: Device, groups: Groups) -> Sample:
        began = time.monotonic()
        orders = self.orders()
        what = orders.get("at", {}).get(device.key)
        if what == "stale":
            self._stale.add(device.key)
        if what == "lost" or device.key in self._stale:
            return Sample(device=device, lost=True)
        _KEPT.append(bytearray(b"x" * orders.get("grow", 0)))
        _KEPT.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(orders.get("leak", 0)))
        for _ in range(orders.get("calls", 1) if groups != {Group.ENERGY} else 1):
            self._between_calls()
            _happen(None if what == "broken" else what)
            time.sleep(orders.get("delay", 0.0))
        if Group.PROCESSES in groups:
            _happen(orders.get("processes", {}).get(device.key))
        taken_at = dict.fromkeys(groups, (began + time.monotonic()) / 2)
        if what == "broken":
            return Sample(device=device, taken_at=taken_at, failed=("power_watts", "utilization_ratio"))
        if Group.ENERGY in groups:
            self._reads[device.key] = self._reads.get(device.key, 0) + 1
            self._control.with_suffix(".reads").write_text(json.dumps(self._reads))
        ended = time.monotonic()
        return Sample(
            device=device,
            taken_at=taken_at,
            read_seconds=dict.fromkeys(groups, (ended - began) / len(groups)),
            power_watts=100.0 if Group.ENERGY in groups else None,
            power_kind=orders.get("kind", "average") if Group.ENERGY in groups else None,
            power_window_seconds=1.0 if Group.ENERGY in groups else None,
            utilization_ratio=0.5 if Group.LOAD in groups else None,
        )

    def close(self) -> None:
        _happen(self.orders().get("close"))
        if self._held is not None:
            os.close(self._held)


def open_unruly(context: OpenContext) -> Opened:
    assert context.scenario is not None
    _CONTROL.append(Path(context.scenario))
    provider = Unruly(Path(context.scenario), context.between_calls)
    _happen(provider.orders().get("open"))
    return Opened(provider, provider.orders().get("version", "unruly 1.0"))
