"""What is wrong, how bad it is, and what to do about it: judged from what a look has found."""

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.doctor.look import Broken, Examination
from exporter.doctor.surroundings import Fact
from exporter.model import DeviceSnapshot, GpuState, Snapshot

LEAST_JOULES = 5.0
"""Below that power and accumulator are not compared: one update of the accumulator may be as much."""
MOST_APART = 0.5
"""An accumulator that moves by more than this much more or less than power says counts another unit or scope."""

_ADVICE = (
    ("nvidia-ml-py", "install the package nvidia-ml-py"),
    ("package amdsmi", "install ROCm's amd-smi-lib of the installed release; the provider drm goes on without it"),
    ("does not fit", "install the amdsmi package of the same ROCm release as libamd_smi.so"),
    ("driver", "look whether the kernel module is loaded, and of the same version as the library: lsmod, dmesg"),
    (
        "permission",
        "let the exporter's user open the device nodes: groups video and render, or the container's devices",
    ),
    ("unknown error", "restart the container: it has lost its devices"),
    ("no device", "look whether PCI shows the card: lspci -d ::0300, lspci -d ::0302"),
)
_STATES = {
    GpuState.LOST: "look into dmesg for an XID or a reset; a GPU off the bus needs a reset or a reboot",
    GpuState.HUNG: "look into dmesg: a call into its driver does not return; other GPUs are read without it",
    GpuState.STALE: "it is listed and gives no readings: look at the log for the reason",
    GpuState.RELEASED: "send SIGUSR2 to the daemon to take the devices up again",
}


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
                found.append(Finding(Severity.DEGRADED, f"attribution by {source.source}", source.reason, _SOURCE))
    found += [Finding(Severity.DEGRADED, fact.name, fact.value, fact.advice) for fact in facts if fact.is_wrong]
    return tuple(sorted(found, key=lambda finding: -finding.severity))


_SOURCE = "see docs/attribution.md for what it needs"


def severity(found: Sequence[Finding]) -> Severity:
    return max((finding.severity for finding in found), default=Severity.FINE)


def _usable(devices: Sequence[DeviceSnapshot]) -> Iterator[Finding]:
    if not devices:
        yield Finding(Severity.UNUSABLE, "host", "no GPU was found", "the lines on the providers say why")
    elif not any(device.state.answers for device in devices):
        yield Finding(Severity.UNUSABLE, "host", "no GPU answers", "the lines on the GPUs say why")


def _provider(snapshot: Snapshot) -> Iterator[Finding]:
    if not snapshot.up and snapshot.wanted:
        advice = next((advice for words, advice in _ADVICE if words in snapshot.reason), "")
        yield Finding(Severity.DEGRADED, snapshot.provider, snapshot.reason or "down", advice)
    expected = snapshot.devices_expected
    if snapshot.up and expected is not None and len(snapshot.devices) < expected:
        text = f"PCI shows {expected} GPUs and the library lists {len(snapshot.devices)}"
        yield Finding(Severity.DEGRADED, snapshot.provider, text, "look into dmesg for cards that failed to start")


def _device(device: DeviceSnapshot, broken: Broken) -> Iterator[Finding]:
    name = device.gpu
    if not device.state.answers:
        yield Finding(Severity.DEGRADED, name, device.state.value, _STATES.get(device.state, ""))
    if broken.failed:
        text = f"the driver answered errors for {_listed(broken.failed)}"
        yield Finding(Severity.DEGRADED, name, text, "they are absent on the page, and counted")
    if broken.rejected:
        text = f"impossible values were turned away of {_listed(broken.rejected)}"
        yield Finding(Severity.DEGRADED, name, text, "they are absent on the page, and counted")
    if device.state is GpuState.OK and device.energy is None:
        text = "it tells neither power nor energy"
        yield Finding(Severity.DEGRADED, name, text, "the provider drm may: see the kernel's hwmon for this card")
    apart = disagreement(device)
    if apart is not None and abs(apart) > MOST_APART:
        advice = "its total goes by power as long as the accumulator does not agree"
        yield Finding(Severity.DEGRADED, name, f"its accumulator {_movement(device, apart)}", advice)


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
