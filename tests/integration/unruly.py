"""A provider that misbehaves on command: what a test writes into its control file happens at the next call.

The scenario of the request is the path of the control file, JSON: `devices` (their keys), `delay` (seconds of each
call), `calls` (in one read), `kind` (of power), `open` and `enumerate` (what happens then) and `at` (key -> what
happens when it is read). What can happen is listed in `_happen`; a device can also be lost. How often energy was read
lies beside the control file, with the suffix `.reads`.
"""

import contextlib
import ctypes
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.protocol import OpenContext, Opened, ProviderError

FLOOD_BYTES = 50_000_000


def _happen(what: str | None) -> None:
    match what:
        case "hang":
            # Like a call that a driver never returns from: no signal but SIGKILL ends it.
            while True:
                time.sleep(60)
        case "abort":
            ctypes.string_at(0)
        case "exit":
            ctypes.CDLL(None).exit(3)
        case "raise":
            raise KeyError("libunruly.so")
        case "gone":
            raise ProviderError("the driver is not loaded")
        case "flood":
            line = b"the library is talkative\n" * 1000
            for descriptor in (1, 2):
                written = 0
                while written < FLOOD_BYTES // 2:
                    written += os.write(descriptor, line)
        case _:
            pass


class Unruly:
    def __init__(self, control: Path, between_calls: Callable[[], None]) -> None:
        self._control = control
        self._between_calls = between_calls
        self._stamp = 0
        self._orders: dict[str, Any] = {}
        self._reads: dict[str, int] = {}
        self.orders()

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
        if what == "lost":
            return Sample(device=device, lost=True)
        for _ in range(orders.get("calls", 1) if groups != {Group.ENERGY} else 1):
            self._between_calls()
            _happen(what)
            time.sleep(orders.get("delay", 0.0))
        if Group.ENERGY in groups:
            self._reads[device.key] = self._reads.get(device.key, 0) + 1
            self._control.with_suffix(".reads").write_text(json.dumps(self._reads))
        ended = time.monotonic()
        return Sample(
            device=device,
            taken_at=dict.fromkeys(groups, (began + ended) / 2),
            read_seconds=dict.fromkeys(groups, (ended - began) / len(groups)),
            power_watts=100.0 if Group.ENERGY in groups else None,
            power_kind=orders.get("kind", "average") if Group.ENERGY in groups else None,
            power_window_seconds=1.0 if Group.ENERGY in groups else None,
            utilization_ratio=0.5 if Group.LOAD in groups else None,
        )

    def close(self) -> None:
        pass


def open_unruly(context: OpenContext) -> Opened:
    assert context.scenario is not None
    provider = Unruly(Path(context.scenario), context.between_calls)
    _happen(provider.orders().get("open"))
    return Opened(provider, "unruly 1.0")
