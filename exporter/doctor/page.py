"""What a look has found, as a person at a terminal reads it."""

from collections.abc import Iterator, Sequence

from exporter import __version__
from exporter.doctor.findings import Finding, Severity, disagreement
from exporter.doctor.look import Broken, Examination
from exporter.doctor.readings import rows
from exporter.doctor.surroundings import Fact
from exporter.model import DeviceSnapshot, Snapshot
from exporter.validation import printable

_VERDICTS = {
    Severity.FINE: "All is well.",
    Severity.DEGRADED: "Something is missing: see above.",
    Severity.UNUSABLE: "Nothing can be measured: see above.",
}


def page(examination: Examination, facts: Sequence[Fact], found: Sequence[Finding], worst: Severity) -> str:
    """Return the report, a section for each provider with a table for each of its GPUs."""
    lines = [f"gpu-exporter {__version__}", ""]
    lines += [f"{fact.name}: {fact.value}{_hint(fact)}" for fact in facts]
    for snapshot in examination.world.snapshots:
        lines += ["", *_provider(snapshot)]
        for device in snapshot.devices:
            lines += ["", *_device(device, examination.broken.get(device.device.key, Broken()))]
    attribution = examination.world.attribution
    if attribution is not None and attribution.sources:
        lines += ["", "Whose processes they are"]
        lines += [f"  {one.source}: {'answers' if one.up else one.reason}" for one in attribution.sources]
    lines.append("")
    for finding in found:
        lines.append(f"{finding.subject}: {finding.text}")
        if finding.advice:
            lines.append(f"  -> {finding.advice}")
    lines.append(_VERDICTS[worst])
    return "".join(f"{printable(line)}\n" for line in lines)


def _hint(fact: Fact) -> str:
    return f" ({fact.advice})" if fact.advice and not fact.is_wrong else ""


def _provider(snapshot: Snapshot) -> Iterator[str]:
    state = "usable" if snapshot.up else snapshot.reason or "not usable"
    version = f", library {snapshot.library_version}" if snapshot.library_version else ""
    expected = "" if snapshot.devices_expected is None else f", PCI shows {snapshot.devices_expected}"
    yield f"{snapshot.provider}: {state}{version}; {len(snapshot.devices)} GPUs{expected}"


def _device(device: DeviceSnapshot, broken: Broken) -> Iterator[str]:
    identity = device.device
    names = (identity.model, identity.pci_address, identity.key, f"driver {identity.driver_version or 'unknown'}")
    yield f"  {device.gpu}: {', '.join(name for name in names if name)}; {device.state.value}"
    yield f"    energy: {energy(device)}"
    table = list(rows(device, broken))
    width = max((len(row.reading) for row in table), default=0)
    missing: dict[str, list[str]] = {}
    for row in table:
        if row.value:
            yield f"    {row.reading:<{width}}  {row.value}  [{row.source}]{f'  {row.reason}' if row.reason else ''}"
        else:
            missing.setdefault(row.reason, []).append(row.reading)
    for reason, readings in missing.items():
        yield f"    {reason}: {', '.join(readings)}"


def energy(device: DeviceSnapshot) -> str:
    """Return where the joules are from, and how the accumulator moved against power."""
    account = device.energy
    if account is None:
        return "none: it tells neither power nor an accumulator"
    if account.hardware_joules is None:
        return f"from power ({device.sample.power_kind or 'of unknown kind'}), no accumulator"
    apart = disagreement(device)
    compared = (
        "too little was used to compare it with power" if apart is None else f"{100 * apart:+.1f} % against power"
    )
    return f"has an accumulator, {compared} in this look; the total follows it once it has agreed for a minute"
