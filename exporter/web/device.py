"""The page of one GPU, which explains a number: each reading with where it is from, and what the ledger made of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.fleet.explain import GROUPS, Explanation, Told, Verdict
from exporter.fleet.trail import Decision
from exporter.model import DeviceSnapshot, EnergyAccount, Group
from exporter.providers.origins import origin
from exporter.web import html
from exporter.web.html import coloured, small, text
from exporter.web.status import divergence, moment
from exporter.wording import STATES, VERDICTS, duration, in_words, joules, kilowatt_hours, size, why

_MAX_VALUES = 32
"""By name, of one reading."""
_MAX_ROWS = 20
"""Of processes, workloads and error events each."""
_BAD = frozenset({Verdict.WITHHELD, Verdict.FAILED, Verdict.REJECTED})


def device_page(explained: Explanation, now: float) -> bytes:
    """Return HTML. `now` is Unix time. It does not change by itself: a person is to read it in peace."""
    device = explained.device
    title = f"{text(device.gpu)} {coloured(device.state.value, 'good' if device.state.answers else 'bad')}"
    parts = [
        f"<h1>{title}</h1>\n",
        html.links(("All GPUs", "../"), ("Look again", "")),
        f'<p class="bad">{text(STATES[device.state])}</p>\n' if device.state in STATES else "",
        html.facts("facts", _identity(device)),
        "<h2>Energy</h2>\n",
        _account(device),
        "<h2>Readings</h2>\n",
        _readings(explained.readings),
        *_users(device),
        *_events(device),
        *_trail(explained, now),
        f"<footer>As of {moment(now)}. Values as read are in the base unit of the reading's name.</footer>\n",
    ]
    return html.page(f"{device.gpu} {device.state.value}", parts)


def _identity(device: DeviceSnapshot) -> Iterator[tuple[str, str]]:
    known = device.device
    for name, value in (
        ("Model", known.model),
        ("Provider", device.provider),
        ("UUID", known.key),
        ("PCI address", known.pci_address),
        ("Serial number", known.serial),
        ("Index of the vendor's tools", None if known.index is None else str(known.index)),
        ("Driver", known.driver_version),
        ("Architecture", known.architecture),
        ("Partitioned as", known.partition_mode),
        ("Firmware", ", ".join(f"{part} {version}" for part, version in known.firmware.items())),
    ):
        yield name, text(value) if value else ""


def _account(device: DeviceSnapshot) -> str:
    account = device.energy
    if account is None:
        return "<p>It never told power or an accumulator, so that nothing is counted.</p>\n"
    return html.facts("facts", _sums(device, account))


def _sums(device: DeviceSnapshot, account: EnergyAccount) -> Iterator[tuple[str, str]]:
    total = account.total_joules
    yield "Total", f"{joules(total)}{small(f'{kilowatt_hours(total)} since {moment(account.start_timestamp)}')}"
    for source, amount in account.by_source_joules.items():
        yield f"of which by {'the accumulator' if source == 'hardware' else 'power'}", joules(amount)
    yield "Accumulator", _trust(account)
    yield "Accumulator against power", divergence(device)
    yield "Its accepted steps", "" if account.hardware_joules is None else joules(account.hardware_joules)
    yield "Integral of power", "" if account.integrated_joules is None else joules(account.integrated_joules)
    if account.uncertainty_ratio is not None:
        yield "Error expected", f"{100 * account.uncertainty_ratio:.2g} %{small('of the newest five minutes')}"
    gaps = f"{duration(account.gap_seconds)} in gaps" if account.gap_seconds else "without gaps"
    yield "Covered", f"{duration(account.covered_seconds)}{small(gaps)}"
    faults = [f"{text(fault)} {count}" for fault, count in account.faults.items() if count]
    yield "Faults", coloured(", ".join(faults), "bad") if faults else "none"
    if device.module_energy_joules is not None:
        yield "Of its module", joules(device.module_energy_joules)


def _trust(account: EnergyAccount) -> str:
    if account.hardware_joules is None:
        return "none: the total follows power"
    if account.qualified:
        return "trusted: the total follows it"
    return "not trusted: the total follows power" if account.integrated_joules is not None else "all that there is"


_HEADS = ("Reading", "Value", "As read", "Source", "Asked by", "Age", "Verdict")


def _readings(readings: Sequence[Told]) -> str:
    if not readings:
        return "<p>None is held of a GPU in this state.</p>\n"
    groups = []
    for group in GROUPS:
        told = [one for one in readings if one.group is group]
        if told:
            rows = [_reading(one) for one in told if one.verdict is not Verdict.NOT_TOLD]
            groups.append((_heading(group, told), rows))
    return html.grouped(_HEADS, groups)


def _heading(group: Group, told: Sequence[Told]) -> str:
    lifetimes = " or ".join(f"{seconds:g} s" for seconds in sorted({one.lifetime_seconds for one in told}))
    missing = ", ".join(html.name(one.reading) for one in told if one.verdict is Verdict.NOT_TOLD)
    rest = small(f"{VERDICTS[Verdict.NOT_TOLD].capitalize()}: {missing}") if missing else ""
    return f"{group.value.capitalize()}{small(f'Withheld after {lifetimes}')}{rest}"


def _reading(told: Told) -> Sequence[str]:
    value = in_words(told.reading, told.value, _MAX_VALUES)
    verdict = VERDICTS[told.verdict]
    if told.verdict is Verdict.WITHHELD and told.age_seconds <= told.lifetime_seconds:
        verdict = "withheld while the GPU does not answer"
    return (
        html.name(told.reading),
        text(value) if value else "",
        text(_raw(told.reading, told.value)),
        text(f"{told.provider}/{told.source}" if told.source else told.provider),
        text(origin(told.provider, told.reading)),
        f"{told.age_seconds:.1f} s",
        coloured(verdict or "ok", "bad" if told.verdict in _BAD else "muted" if verdict else "good"),
    )


def _raw(reading: str, value: Any) -> str:
    """Return a value as it was read where its words leave some of it out; empty: they do not."""
    if isinstance(value, Mapping):
        shown = ((name, _raw(reading, item)) for name, item in list(value.items())[:_MAX_VALUES])
        return ", ".join(f"{name} {raw}" for name, raw in shown if raw)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    raw = f"{value:.15g}"
    return "" if f"{in_words(reading, value)} ".startswith(f"{raw} ") else raw


def _users(device: DeviceSnapshot) -> Iterator[str]:
    if device.workloads:
        yield "<h2>Workloads</h2>\n"
        yield html.table(
            ("Workload", "Allocated", "Energy in use", "Energy held idle", "Busy"),
            (
                (
                    text(one.workload.key),
                    "" if one.allocation_ratio is None else f"{100 * one.allocation_ratio:.0f} %",
                    "" if one.active_joules is None else joules(one.active_joules),
                    "" if one.idle_joules is None else joules(one.idle_joules),
                    "" if one.busy_seconds is None else duration(one.busy_seconds),
                )
                for one in device.workloads[:_MAX_ROWS]
            ),
        )
        yield _more(len(device.workloads))
    if device.process_series:
        yield "<h2>Processes</h2>\n"
        yield html.table(
            ("Process", "Name", "User", "Workload", "Memory"),
            (
                (
                    text(one.pid or "-"),
                    *(text(label) if label else "" for label in (one.name, one.user, one.workload)),
                    "" if one.memory_used_bytes is None else size(one.memory_used_bytes),
                )
                for one in device.process_series[:_MAX_ROWS]
            ),
        )
        yield _more(len(device.process_series))


def _events(device: DeviceSnapshot) -> Iterator[str]:
    counted = [(of, count) for of, count in device.error_events.items() if count]
    if counted:
        yield "<h2>Error events</h2>\n"
        rows = (
            (text(f"{kind} {code}"), f"{count:.0f}", _last(device.error_event_timestamps.get((kind, code))))
            for (kind, code), count in counted[:_MAX_ROWS]
        )
        yield html.table(("Event", "Count", "Last"), rows)
        yield _more(len(counted))


def _last(timestamp: float | None) -> str:
    return "-" if timestamp is None else moment(timestamp)


def _more(count: int) -> str:
    return f"<p>and {count - _MAX_ROWS} more</p>\n" if count > _MAX_ROWS else ""


_TRAIL_HEADS = (
    *("Decision at", "Why", "Power, W", "Accumulator, J", "Added by it, J", "Added by power, J", "Gap, s"),
    "Ahead of it, J",
)


def _trail(explained: Explanation, now: float) -> Iterator[str]:
    if explained.decisions:
        yield f"<h2>What the ledger made of the newest {len(explained.decisions)} readings</h2>\n"
        ahead = now - explained.now
        yield html.table(_TRAIL_HEADS, (_decision(one, ahead, explained.now) for one in explained.decisions), "wide")


def _decision(decision: Decision, ahead: float, now: float) -> Sequence[str]:
    """`ahead`: by how much Unix time is ahead of monotonic time."""
    at = decision.at + ahead
    return (
        f"{moment(at)[-12:-4]}.{int(at % 1 * 1000):03}{small(f'{max(0.0, now - decision.at):.1f} s ago')}",
        text(why(decision)),
        "" if decision.power_watts is None else f"{decision.power_watts:.10g}",
        "" if decision.counter_joules is None else f"{decision.counter_joules:.3f}",
        _added(decision.hardware_joules),
        _added(decision.integrated_joules),
        f"{decision.gap_seconds:.1f}" if decision.gap_seconds else "",
        f"{decision.credit_joules:.3f}" if decision.credit_joules else "",
    )


def _added(amount: float) -> str:
    return f"+{amount:.3f}" if amount else ""
