"""The status page: what a person wants to know in one look who opens the exporter's address in a browser."""

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from exporter import __version__
from exporter.config import DEVICES
from exporter.energy.crosscheck import ALARM_BEYOND
from exporter.model import DeviceSnapshot, GpuState, Snapshot, World
from exporter.web import html
from exporter.web.html import coloured, small, text
from exporter.web.readiness import age, is_at_first_attempt
from exporter.wording import STATES, advice, joules, kilowatt_hours, size

REFRESH_SECONDS = 5
MAX_DEVICES = 512
"""Rows; no host has as many, so more are a mistake that must not make the page unbounded."""
_MAX_NAMED = 3
"""Workloads and reasons of throttling that are named of a GPU."""
_HELD_BACK_BY_NOTHING = "idle"
"""Lower clocks for want of work are no throttling."""


def landing_page(world: World, telemetry_path: str, now: float, host: str = "") -> bytes:
    """Return HTML. `now` is Unix time. All strings from devices are escaped and cut."""
    devices = [device for snapshot in world.snapshots for device in snapshot.devices]
    parts = [
        f"<h1>GPUs{f' of {text(host)}' if host else ''}</h1>\n",
        # Relative, for those who serve us under a path of theirs.
        html.links(
            ("Metrics", text(f".{quote(telemetry_path)}")), ("Health", "./-/healthy"), ("Readiness", "./-/ready")
        ),
        _wrong(world, devices),
        _sums(devices) if devices else _nothing(world),
    ]
    if devices:
        parts.append(html.table(_HEADS, (_device(device, now) for device in devices[:MAX_DEVICES])))
    if len(devices) > MAX_DEVICES:
        parts.append(f"<p>and {len(devices) - MAX_DEVICES} more</p>\n")
    parts.append("<h2>Providers</h2>\n")
    parts.append(html.table(_PROVIDER_HEADS, (_provider(snapshot, now) for snapshot in world.snapshots)))
    parts.append(
        f"<footer>gpu-exporter {text(__version__)}, Python {text(platform.python_version())}; "
        f"{moment(now)}, refreshed every {REFRESH_SECONDS} s</footer>\n"
    )
    return html.page(f"GPUs of {host}" if host else "gpu-exporter", parts)


def moment(timestamp: float, *, seconds: bool = True) -> str:
    """Return a date and a time of day. `timestamp`: Unix time."""
    try:
        return time.strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC", time.gmtime(timestamp))
    except (OverflowError, ValueError, OSError):  # of a clock that was never set
        return "-"


def energy_of(device: DeviceSnapshot) -> str:
    """Return HTML: joules since the start, what they are from, and how far the two sensors are apart."""
    account = device.energy
    if account is None:
        return ""
    apart = divergence(device)
    by = "accumulator" if account.qualified or account.integrated_joules is None else "power"
    return joules(account.total_joules) + small(f"from\u00a0{by}{', ' if apart else ''}{apart}")


def divergence(device: DeviceSnapshot) -> str:
    """Return HTML: the accumulator against power, in percent; empty: it cannot be told."""
    ratio = None if device.energy is None else device.energy.divergence_ratio
    if ratio is None:
        return ""
    percent = round(100 * ratio, 1) or 0.0  # no minus before zero
    return coloured(f"{percent:+.1f}\u00a0%\u00a0apart", "bad" if abs(ratio) > ALARM_BEYOND else "")


_HEADS = ("GPU", "State", "Load", "Memory", "Power", "Temperature", "Energy", "Used by", "Last sample")


def _device(device: DeviceSnapshot, now: float) -> Sequence[str]:
    sample = device.sample
    load = sample.utilization_ratio
    path = text(f".{DEVICES}/{quote(device.gpu, safe='', errors='replace')}")
    about = ", ".join(text(words) for words in (device.device.model, device.provider) if words)
    return (
        f'<a href="{path}">{text(device.gpu)}</a>{small(about)}',
        coloured(device.state.value, "good" if device.state.answers else "bad") + small(_throttled(device)),
        "" if load is None else f"{html.share(load)}{100 * load:.0f} %",
        _memory(device),
        _power(device),
        _temperature(device),
        energy_of(device),
        _used_by(device),
        age(device.last_sample_timestamp, now),
    )


def _memory(device: DeviceSnapshot) -> str:
    used, whole = device.sample.memory_used_bytes, device.sample.memory_size_bytes
    if used is None:
        return "" if whole is None else f"{size(whole)}{small('in all')}"
    return f"{html.share(used / whole) if whole else ''}{size(used)}{small(f'of {size(whole)}' if whole else '')}"


def _power(device: DeviceSnapshot) -> str:
    watts, limit = device.sample.power_watts, device.sample.power_limit_watts
    if watts is None:
        return ""
    source = device.sources.get("power_watts")
    notes = [f"of\u00a0{limit:.0f}\u00a0W"] if limit is not None else []
    notes += [f"by {text(source)}"] if source is not None else []
    return f"{watts:.0f} W{small(', '.join(notes))}"


def _temperature(device: DeviceSnapshot) -> str:
    found = device.sample.temperature_celsius
    if not found:
        return ""
    hottest = max(found, key=lambda sensor: found[sensor])
    return f"{found[hottest]:.0f} °C{small(text(hottest))}"


def _throttled(device: DeviceSnapshot) -> str:
    held = [reason for reason, holds in device.sample.throttled.items() if holds and reason != _HELD_BACK_BY_NOTHING]
    return _some("held back by ", held)


def _used_by(device: DeviceSnapshot) -> str:
    named = [one.workload.key for one in device.workloads]
    processes = device.sample.processes
    if named or processes is None:
        return _some("", named)
    return f"{len(processes)}\u00a0{'process' if len(processes) == 1 else 'processes'}" if processes else "nobody"


def _some(before: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{before}{', '.join(map(text, names[:_MAX_NAMED]))}{more}" if names else ""


def _sums(devices: Sequence[DeviceSnapshot]) -> str:
    answering = sum(device.state.answers for device in devices)
    watts = [device.sample.power_watts for device in devices if device.sample.power_watts is not None]
    loads = [device.sample.utilization_ratio for device in devices if device.sample.utilization_ratio is not None]
    used = sum(device.sample.memory_used_bytes or 0.0 for device in devices)
    whole = sum(device.sample.memory_size_bytes or 0.0 for device in devices)
    accounts = [device.energy for device in devices if device.energy is not None]
    total = sum(account.total_joules for account in accounts)
    since = min((account.start_timestamp for account in accounts), default=0.0)
    kind = "" if answering == len(devices) else "bad"
    return html.facts(
        "sums",
        (
            ("GPUs that answer", coloured(f"{answering} of {len(devices)}", kind)),
            ("Power", f"{sum(watts):.0f} W" if watts else ""),
            ("Mean load", f"{100 * sum(loads) / len(loads):.0f} %" if loads else ""),
            ("Memory used", f"{size(used)}{small(f'of {size(whole)}')}" if whole else ""),
            (
                "Energy",
                f"{joules(total)}{small(f'{kilowatt_hours(total)} since {moment(since, seconds=False)}')}"
                if accounts
                else "",
            ),
        ),
    )


def _nothing(world: World) -> str:
    if any(map(is_at_first_attempt, world.snapshots)):
        return "<p>The GPUs are being opened.</p>\n"
    if any(map(_is_missed, world.snapshots)):
        return '<p class="bad">No GPU is served: see the providers.</p>\n'
    return "<p>No GPU is served. On a host that has some, the command gpu-exporter doctor says why.</p>\n"


def _is_missed(snapshot: Snapshot) -> bool:
    return not snapshot.up and snapshot.wanted and not is_at_first_attempt(snapshot)


_PROVIDER_HEADS = ("Provider", "State", "GPUs", "Library", "Restarts", "Last reading", "Why")


def _provider(snapshot: Snapshot, now: float) -> Sequence[str]:
    # One that nobody asked for, on a host without its hardware, is down and nothing is wrong.
    kind = "good" if snapshot.up else "bad" if _is_missed(snapshot) else "muted"
    expected = snapshot.devices_expected
    restarts = sum(snapshot.worker_restarts.values())
    helps = advice(snapshot.reason) if _is_missed(snapshot) else ""
    return (
        text(snapshot.provider),
        coloured("up" if snapshot.up else "down", kind),
        f"{len(snapshot.devices)}{f' of {expected} on PCI' if expected is not None else ''}",
        text(snapshot.library_version) if snapshot.library_version is not None else "",
        f"{restarts}{small(_some('', [f'{count} for {cause}' for cause, count in snapshot.worker_restarts.items()]))}"
        if restarts
        else "",
        age(snapshot.last_sample_timestamp, now),
        f"{text(snapshot.reason) if snapshot.reason else ''}{small(text(helps) if helps else '')}",
    )


def _wrong(world: World, devices: Iterable[DeviceSnapshot]) -> str:
    """Return what a person would want to be told first."""
    found = [*_troubles(world), *(words for device in devices if (words := _trouble_of(device, world)))]
    more = len(found) - MAX_DEVICES
    lines = [f"<li>{words}</li>\n" for words in found[:MAX_DEVICES]] + (
        [f"<li>and {more} more</li>\n"] if more > 0 else []
    )
    return f'<ul class="wrong">\n{"".join(lines)}</ul>\n' if lines else ""


def _trouble_of(device: DeviceSnapshot, world: World) -> str:
    if device.state in STATES and not (world.released and device.state is GpuState.RELEASED):
        return f"{text(device.gpu)} is {device.state.value}: {text(STATES[device.state])}"
    ratio = None if device.energy is None else device.energy.divergence_ratio
    if ratio is None or abs(ratio) <= ALARM_BEYOND:
        return ""
    return f"The accumulator of {text(device.gpu)} counts {100 * ratio:+.0f} % against its power: one of them is wrong."


def _troubles(world: World) -> Iterator[str]:
    if world.released:
        yield f"The devices are released on request: {STATES[GpuState.RELEASED]}."
    if not world.config_reloaded:
        yield "The configuration could not be reloaded; the log says why."
    if world.workers_abandoned:
        yield f"Child processes that could not be killed: {world.workers_abandoned}"
    if world.journal_up is False:
        yield "Totals are not kept over a restart: the journal cannot be written."
    dropped = sum(world.series_dropped.values())
    if dropped:
        yield f"Series that the page had no room for: {dropped:.0f}"
    for snapshot in world.snapshots:
        if _is_missed(snapshot):
            yield f"{text(snapshot.provider)} is down: {text(snapshot.reason)}"
    for source in () if world.attribution is None else world.attribution.sources:
        if not source.up:
            yield f"{text(source.source)} cannot tell who uses the GPUs: {text(source.reason)}"
