"""How readings, states and reasons are put to a person: the same words at a terminal and in a browser."""

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from exporter.fleet.explain import Verdict
from exporter.fleet.trail import Decision, Why
from exporter.model import GpuState

_UNITS = {"watts": "W", "joules": "J", "celsius": "°C", "seconds": "s"}
_MOST_SHOWN = 4
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_JOULES_PER_KILOWATT_HOUR = 3.6e6

VERDICTS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.OK: "",
        Verdict.PASSED_OVER: "another provider is preferred",
        Verdict.WITHHELD: "it is too old to be shown",
        Verdict.FAILED: "the driver answered with an error",
        Verdict.REJECTED: "the value was outside what is physically possible",
        Verdict.NOT_TOLD: "not told by this device or its driver",
    }
)
"""Why a reading is not to be had or not to be relied on; empty: all is well."""

STATES: Mapping[GpuState, str] = MappingProxyType(
    {
        GpuState.LOST: "look into dmesg for an XID or a reset; a GPU off the bus needs a reset or a reboot",
        GpuState.HUNG: "look into dmesg: a call into its driver does not return; other GPUs are read without it",
        GpuState.STALE: "it is listed and gives no readings: look at the log for the reason",
        GpuState.RELEASED: "send SIGUSR2 to the daemon to take the devices up again",
    }
)
"""What to do about a GPU that does not answer."""

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


def advice(reason: str) -> str:
    """Return what to do about a provider that is down for this reason; empty: nothing is known that would help."""
    return next((words for part, words in _ADVICE if part in reason), "")


def in_words(name: str, value: Any, most: int = _MOST_SHOWN) -> str:
    """Return the value of a field of Sample with its unit; empty: there is none. `most`: of values by name."""
    if value is None or (isinstance(value, Mapping) and not value):
        return ""
    if isinstance(value, Mapping):
        shown = [f"{key} {in_words(name, item)}" for key, item in list(value.items())[:most]]
        return ", ".join(shown) + (f" and {len(value) - most} more" if len(value) > most else "")
    if isinstance(value, tuple):
        return str(len(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, float(value))
    return str(getattr(value, "state", value))


def size(amount: float) -> str:
    """Return an amount of bytes."""
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.1f} MiB"


def joules(amount: float) -> str:
    """Return an amount of energy to four digits."""
    for factor, prefix in _THOUSANDS:
        if amount >= factor:
            return f"{amount / factor:#.4g} {prefix}J"
    return f"{amount:.4g} J"


def kilowatt_hours(amount: float) -> str:
    """Return an amount of joules in the unit that is paid for."""
    amount /= _JOULES_PER_KILOWATT_HOUR
    return f"{amount:.4f} kWh" if amount < 1 else f"{amount:.1f} kWh"


def duration(seconds: float) -> str:
    """Return a span of time in the two largest units that it fills."""
    for (length, unit), (part, below) in pairwise(_SPANS):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} {seconds % length // part:.0f} {below}"
    return f"{seconds:.1f} s"


def _number(name: str, value: float) -> str:
    unit = name.rpartition("_")[2]
    if unit == "ratio":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return size(value)
    if unit == "hertz":
        return f"{value / 1e6:.0f} MHz"
    return f"{value:.10g} {_UNITS.get(unit, '')}".rstrip()


_WHY: Mapping[Why, str] = MappingProxyType(
    {
        Why.BEGUN: "first reading: nothing before it to count from",
        Why.RESTORED: "went on from the journal",
        Why.DETACHED: "read from another sensor from here on, which has to earn trust anew",
        Why.CREDIT: "accumulator stands still: power counts in its place",
        Why.CATCH_UP: "accumulator went on after standing still, less what power was credited",
        Why.RESET: "accumulator was reset: power counts for this step",
        Why.JUMP: "accumulator jumped by more than the power limit allows: power counts for this step",
        Why.UNTOLD: "accumulator may have turned over meanwhile: its step cannot be told",
        Why.GAP: "gap: nobody knows the energy of these seconds",
    }
)
_FOUND: Mapping[Why, str] = MappingProxyType(
    {
        Why.QUALIFIED: "accumulator agrees with power: the total follows it from here on",
        Why.DISQUALIFIED: "accumulator disagrees with power: the total follows power from here on",
        Why.STUCK: "power reading was found to be stuck",
    }
)


def why(decision: Decision) -> str:
    """Return what the ledger made of a reading, and why."""
    reasons = decision.why
    said = [words for reason, words in _WHY.items() if reason in reasons]
    if not reasons & (Why.CATCH_UP | Why.RESET | Why.JUMP | Why.UNTOLD | Why.CREDIT | Why.BEGUN):
        said.append(_usual(decision))
    said += [words for reason, words in _FOUND.items() if reason in reasons]
    return "; ".join(filter(None, said))


def _usual(decision: Decision) -> str:
    """Return what happens nearly always."""
    reasons = decision.why
    if reasons & (Why.DETACHED | Why.RESTORED):
        return ""
    trusted = Why.TRUSTED in reasons
    if Why.STEP in reasons:
        return "step of the accumulator" if trusted else "accumulator moved, but is not trusted: power counts"
    if Why.UNCHANGED in reasons:
        return (
            "accumulator unchanged: the next step has this time in it"
            if trusted
            else "accumulator unchanged: power counts"
        )
    return "accumulator gave no value" if trusted else "power counts"
