"""When a restart of the whole daemon is asked for."""

import pytest

from exporter.model import Device, DeviceSnapshot, GpuState, Sample, Snapshot
from exporter.supervision.lasting import lasting_failure

DEVICE = Device(vendor="test", key="a")
SEEN = (DeviceSnapshot(gpu="test0", provider="one", device=DEVICE, state=GpuState.STALE, sample=Sample(device=DEVICE)),)


def snapshot(devices: tuple[DeviceSnapshot, ...] = (), expected: int | None = None) -> Snapshot:
    return Snapshot(
        provider="one", up=False, wanted=True, reason="the driver is gone", devices=devices, devices_expected=expected
    )


@pytest.mark.parametrize(
    ("of", "seconds", "told"),
    [
        (snapshot(SEEN), 600.0, True),
        (snapshot(expected=8), 600.0, True),
        (snapshot(SEEN), 599.0, False),
        (snapshot(SEEN), None, False),
        (snapshot(), 6000.0, False),
        (snapshot(expected=0), 6000.0, False),
    ],
    ids=["seen before", "shown by PCI", "not so long", "it is up", "no GPU", "no GPU on the bus"],
)
def test_a_provider_with_gpus_that_is_down_for_long_is_a_reason(
    of: Snapshot, seconds: float | None, told: bool
) -> None:
    reason = lasting_failure([of], {} if seconds is None else {"one": seconds}, 600.0)
    assert reason == ("provider one has been down for 600 s: the driver is gone" if told else None)
