"""What a package sends and receives over its XGMI links, from the table of metrics that is read in any case."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from exporter.model import LinkSample
from exporter.providers.sanitise import Range, Readings

_NAME = "links"
_KILOBYTE = 1024.0
"""AMD says KB and does not say which; it says KB of sizes that are powers of two, too."""
_BYTES = Range(0.0, 2.0**63)
_STATUS = Range(0.0, 2.0)
_UP = 1.0
_MOST_LINKS = 32


def read_links(metrics: Mapping[str, Any], readings: Readings) -> tuple[LinkSample, ...] | None:
    """Return the links by their number on the package; None where the metrics do not tell.

    There is no call for it: `amdsmi_get_link_metrics` makes the same of the same table. The counts of errors that AMD
    SMI has are no counters of ours: the driver clears them at each read, for whoever reads first.

    Of a card without XGMI, or where the table has no such field, some releases answer zeros instead of "no value".
    """
    received, sent, states = (
        _list(metrics.get(key)) for key in ("xgmi_read_data_acc", "xgmi_write_data_acc", "xgmi_link_status")
    )
    links = []
    for number, (receive, transmit, state) in enumerate(zip_longest(received, sent, states)):
        status = readings.number(_NAME, state, _STATUS, bits=16)
        link = LinkSample(
            kind="xgmi",
            link=str(number),
            up=None if status is None else status == _UP,
            receive_bytes=readings.number(_NAME, receive, _BYTES, _KILOBYTE, bits=64),
            transmit_bytes=readings.number(_NAME, transmit, _BYTES, _KILOBYTE, bits=64),
        )
        if link.up is not None or link.receive_bytes or link.transmit_bytes:
            links.append(link)
    return tuple(links) if any(link.up or link.receive_bytes or link.transmit_bytes for link in links) else None


def _list(raw: object) -> list[Any]:
    return raw[:_MOST_LINKS] if isinstance(raw, list) else []
