"""What is wrong, how bad it is, and what to do about it: judged from what a look has found."""

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.doctor.look import Broken, Examination
from exporter.doctor.surroundings import KUBELET, PIDS, Fact
from exporter.model import DeviceSnapshot, GpuState, Snapshot
from exporter.wording import STATES, advice

LEAST_JOULES = 5.0
"""Below that power and accumulator are not compared: one update of the accumulator may be as much."""
MOST_APART = 0.5
"""An accumulator that moves by more than this much more or less than power says counts another unit or scope."""


class Severity(enum.IntEnum):
    """Also the exit code."""

    FINE = 0
    DEGRADED = 1
    UNUSABLE = 2


class Finding(NamedTuple):
    severity: Severity
    subject: str
    text: str
    advice: str = ""


def findings(examination: Examination, facts: Sequence[Fact]) -> tuple[Finding, ...]:
    """Return what is wrong, worst first."""
    world = examination.world
    devices = [device for snapshot in world.snapshots for device in snapshot.devices]
    found = [*_usable(devices), *(one for snapshot in world.snapshots for one in _provider(snapshot))]
    for device in devices:
        found += _device(device, examination.broken.get(device.device.key, Broken()))
    if world.attribution is not None:
        for source in world.attribution.sources:
            if not source.up:
                found.append(
                    Finding(
                        Severity.DEGRADED,
                        f"attribution by {source.source}",
                        source.reason,
                        _help(source.source, source.reason),
                    )
                )
    found += [Finding(Severity.DEGRADED, fact.name, fact.value, fact.advice) for fact in facts if fact.is_wrong]
    return tuple(sorted(found, key=lambda finding: -finding.severity))


_SOURCE = "see docs/attribution.md for what it needs"
_HELP = (
    ("proc", "mean other processes", PIDS),
    ("proc", "hidepid", "mount /proc with gid= of one of the exporter's groups, or run as root or with CAP_SYS_PTRACE"),
    ("kubelet", "gRPC is not installed", "install gpu-exporter with its extra: gpu-exporter[kubernetes]"),
    ("kubelet", "is not there", KUBELET),
    ("kubelet", "may not", KUBELET),
    ("kubelet", "permission", KUBELET),
)
"""What to do about a source, by a part of its reason."""


def _help(source: str, reason: str) -> str:
    return next((words for name, part, words in _HELP if name == source and part in reason), _SOURCE)


def severity(found: Sequence[Finding]) -> Severity:
    return max((finding.severity for finding in found), default=Severity.FINE)


def _usable(devices: Sequence[DeviceSnapshot]) -> Iterator[Finding]:
    if not devices:
        yield Finding(Severity.UNUSABLE, "host", "no GPU was found", "the lines on the providers say why")
    elif not any(device.state.answers for device in devices):
        yield Finding(Severity.UNUSABLE, "host", "no GPU answers", "the lines on the GPUs say why")


def _provider(snapshot: Snapshot) -> Iterator[Finding]:
    if not snapshot.up and snapshot.wanted:
        yield Finding(Severity.DEGRADED, snapshot.provider, snapshot.reason or "down", advice(snapshot.reason))
    expected = snapshot.devices_expected
    if snapshot.up and expected is not None and len(snapshot.devices) < expected:
        text = f"PCI shows {expected} GPUs and the library lists {len(snapshot.devices)}"
        yield Finding(Severity.DEGRADED, snapshot.provider, text, "look into dmesg for cards that failed to start")


def _device(device: DeviceSnapshot, broken: Broken) -> Iterator[Finding]:
    name = device.gpu
    if not device.state.answers:
        yield Finding(Severity.DEGRADED, name, device.state.value, STATES.get(device.state, ""))
    if broken.failed:
        text = f"the driver answered errors for {_listed(broken.failed)}"
        yield Finding(Severity.DEGRADED, name, text, "they are absent on the page, and counted")
    if broken.rejected:
        text = f"impossible values were turned away of {_listed(broken.rejected)}"
        yield Finding(Severity.DEGRADED, name, text, "they are absent on the page, and counted")
    if device.state is GpuState.OK and device.energy is None:
        text = "it tells neither power nor energy"
        yield Finding(Severity.DEGRADED, name, text, "if the provider drm is not opened, open it: the kernel may know")
    apart = disagreement(device)
    if apart is not None and abs(apart) > MOST_APART:
        goes_on = "its total goes by power as long as the accumulator does not agree"
        yield Finding(Severity.DEGRADED, name, f"its accumulator {_movement(device, apart)}", goes_on)


def disagreement(device: DeviceSnapshot) -> float | None:
    """Return accumulator against integrated power, less one, over the look; None: it cannot be told."""
    account = device.energy
    if account is None or account.hardware_joules is None or account.integrated_joules is None:
        return None
    if account.integrated_joules < LEAST_JOULES:
        return None
    return account.hardware_joules / account.integrated_joules - 1


def _movement(device: DeviceSnapshot, apart: float) -> str:
    if apart > -1:
        return f"moved {100 * apart:+.0f} % against its power: another unit or scope"
    jumps = device.energy is not None and device.energy.faults.get("jump", 0)
    return "moves by more than the power limit allows: another unit" if jumps else "stands still"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
