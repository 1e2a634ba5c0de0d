"""Which readings one GPU gives, from where, and why it does not give the others."""

from collections.abc import Iterator
from typing import NamedTuple

from exporter.doctor.look import Broken
from exporter.fleet.explain import GROUPS, Verdict, readings_of
from exporter.model import DeviceSnapshot, Group
from exporter.wording import VERDICTS, in_words

NOT_TOLD = VERDICTS[Verdict.NOT_TOLD]
FAILED = VERDICTS[Verdict.FAILED]
REJECTED = VERDICTS[Verdict.REJECTED]


class Row(NamedTuple):
    reading: str
    """Field of Sample."""
    group: Group
    value: str
    """In words; empty: there is none."""
    source: str
    reason: str
    """Why there is none, or why it is not to be relied on; empty: all is well."""


def rows(device: DeviceSnapshot, broken: Broken) -> Iterator[Row]:
    """Yield a row for each reading that a GPU may have; of groups that were not read there is none."""
    for group in GROUPS:
        if group in device.sample.taken_at:
            for name in readings_of(group):
                yield _row(device, group, name, broken)


def _row(device: DeviceSnapshot, group: Group, name: str, broken: Broken) -> Row:
    value = in_words(name, getattr(device.sample, name))
    source = device.sources.get(name, device.provider) if value else ""
    reason = FAILED if name in broken.failed else REJECTED if name in broken.rejected else ""
    return Row(name, group, value, source, reason or ("" if value else NOT_TOLD))
