"""Whether a provider has been down for so long that a restart of everything is the cure that is left. Pure."""

from collections.abc import Iterable, Mapping

from exporter.model import Snapshot


def lasting_failure(snapshots: Iterable[Snapshot], down_seconds: Mapping[str, float], after: float) -> str | None:
    """Return in words which provider has failed for `after` seconds, and why; None: none has.

    `down_seconds`: for how long, by provider; one that is up has no entry. A provider without a GPU on this host, be it
    seen before or shown by PCI, is not missed, even if somebody asked for it by name.
    """
    for snapshot in snapshots:
        seconds = down_seconds.get(snapshot.provider)
        if seconds is None or seconds < after or not (snapshot.devices or snapshot.devices_expected):
            continue
        return f"provider {snapshot.provider} has been down for {seconds:.0f} s: {snapshot.reason}"
    return None
