"""NVLink: which links a GPU has, whether they are up, what went over them and what went wrong.

All of it is asked for in one call, as fields whose scope is the number of the link. Which of them a GPU knows depends
on its generation: what it does not answer for any link is not asked for again for some minutes.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from exporter.model import LinkSample
from exporter.providers.nvidia.fields import Field, Fields
from exporter.providers.nvidia.identity import Gpu, LinkFields, Links
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import Range

NAME = "links"
COUNT_OF_LINKS: Field = (91, 0)
_NONE, _ONLY_COUNT = Fields({}), Fields({COUNT_OF_LINKS: NAME})
_EVERY_SECONDS = 4.5
_ANEW_SECONDS = 600.0
"""Two hundred fields are tried to learn which ones tell of the links."""
_MOST_LINKS = 36  # Blackwell has 18; bounds the call should the library answer garbage
_LINKS = Range(0, _MOST_LINKS)
_COUNTED = Range(0.0, 2.0**74)
"""Of bytes and errors: a link of Hopper moves more than 2^53 bytes within a week."""
_PLAIN, _KIB = 2**53, 1024

_STATE = 165
_UP = frozenset({1, 2, 3})
"""Active, asleep to save power (it wakes by itself), and active without traffic."""
# By what they tell, the fields that do, in order of preference. Of bytes: payload in KiB up to Hopper, then bytes with
# what the protocol adds. Of the others: those of each link of Hopper, then those that came with Blackwell.
_TRANSMIT, _RECEIVE = (138, 202), (139, 204)
_IN_KIB = frozenset({138, 139})
_ERRORS = {"crc": (163,), "recovery": (162, 215), "replay": (161,), "symbol": (221,)}
_OF_EACH = (_STATE, *_TRANSMIT, *_RECEIVE, *(field for fields in _ERRORS.values() for field in fields))
# Volta and Ampere count errors in a field for each link, without scope: of the first six links and of the next six.
_SINGLE = {"crc": (32, 96), "recovery": (53, 114), "replay": (46, 108)}
_SIX = 6


def link_fields(gpu: Gpu, now: float) -> Fields:
    """Return the fields to ask for about links at the monotonic time `now`; none while `links` repeats itself."""
    if now - gpu.links_seen[0] < _EVERY_SECONDS:
        return _NONE
    return _ONLY_COUNT if gpu.links is None else gpu.links.asked


def links(reading: Reading, gpu: Gpu, fields: Mapping[Field, float], now: float) -> tuple[LinkSample, ...] | None:
    """Return the links; (): none, None: it is not told. `fields`: those that were read already, at `now`.

    What was read less than 5 s ago is repeated: a hundred fields in each read are too dear for those who want
    temperatures once a second.
    """
    at, seen = gpu.links_seen
    if now - at < _EVERY_SECONDS:
        return seen
    found = _read(reading, gpu, fields, now)
    if found is not None and not reading.broke(NAME):
        gpu.links_seen = (now, found)
    return found


def _read(reading: Reading, gpu: Gpu, fields: Mapping[Field, float], now: float) -> tuple[LinkSample, ...] | None:
    count = reading.number(NAME, fields.get(COUNT_OF_LINKS), _LINKS)
    if count is None:
        return None
    known = gpu.links
    if known is None or len(known.each) != count or now - gpu.links_learned >= _ANEW_SECONDS:
        numbers = range(int(count))
        fields = reading.fields(Fields({field: NAME for number in numbers for field in _candidates(number)}))
        if known is None or len(known.each) != count or not reading.broke(NAME):  # else it is tried again
            known = _links(int(count), frozenset(map(_kind, fields)))
            gpu.links, gpu.links_learned = None if reading.broke(NAME) or not fields else known, now
    counted = _counted(reading, known.units, fields)
    return tuple([_link(reading, link, fields, counted) for link in known.each])


@lru_cache(maxsize=16)
def _links(count: int, kinds: frozenset[int]) -> Links:
    """Return what there is to know of links of which some kinds of fields are answered: all GPUs of a host share it."""
    each = tuple(_learned(number, kinds) for number in range(count))
    fields = [field for link in each for field in _fields(link)]
    states = {link.state for link in each}
    return Links(
        each=each,
        asked=Fields({COUNT_OF_LINKS: NAME, **dict.fromkeys(fields, NAME)}),
        units={field: _KIB if field[0] in _IN_KIB else 1 for field in fields if field not in states},
    )


def _candidates(number: int) -> list[Field]:
    return [*((field, number) for field in _OF_EACH), *_single(number).values()]


def _single(number: int) -> dict[str, Field]:
    six, place = divmod(number, _SIX)
    return {error: (first[six] + place, 0) for error, first in _SINGLE.items() if six < len(first)}


def _kind(field: Field) -> int:
    """Return what a field has in common with those that tell the same of the other links."""
    single = (min(first) for first in _SINGLE.values() for f in first if f <= field[0] < f + _SIX)
    return next(single, field[0])


def _learned(number: int, kinds: frozenset[int]) -> LinkFields:
    """Choose the fields of a link by what is answered for any link, and not by what breaks for once."""

    def first(*candidates: Field) -> Field | None:
        return next((field for field in candidates if _kind(field) in kinds), None)

    single = _single(number)
    errors = {
        error: first(*((each, number) for each in ids), *([single[error]] if error in single else []))
        for error, ids in _ERRORS.items()
    }
    return LinkFields(
        link=number,
        state=first((_STATE, number)),
        receive=first(*((each, number) for each in _RECEIVE)),
        transmit=first(*((each, number) for each in _TRANSMIT)),
        errors=tuple((error, field) for error, field in errors.items() if field is not None),
    )


def _fields(link: LinkFields) -> list[Field]:
    one_each = (link.state, link.receive, link.transmit)
    return [field for field in (*one_each, *(field for _, field in link.errors)) if field is not None]


def _link(
    reading: Reading, link: LinkFields, fields: Mapping[Field, float], counted: Mapping[Field | None, float]
) -> LinkSample:
    up: bool | None
    if link.state is None:
        active = reading.get(NAME, "nvmlDeviceGetNvLinkState", link.link)
        up = None if active is None else active == 1
    else:
        state = fields.get(link.state)
        up = None if state is None else state in _UP
    return LinkSample(
        kind="nvlink",
        link=str(link.link),
        up=up,
        receive_bytes=counted.get(link.receive),
        transmit_bytes=counted.get(link.transmit),
        errors={error: counted[field] for error, field in link.errors if field in counted},
    )


def _counted(reading: Reading, units: Mapping[Field, int], fields: Mapping[Field, float]) -> dict[Field | None, float]:
    """Return the counters of all links, those of bytes in bytes."""
    counted: dict[Field | None, float] = {}
    for field, unit in units.items():
        raw: Any = fields.get(field)
        if type(raw) is int and 0 <= raw < _PLAIN:  # a hundred times in each read: spared what only others need
            counted[field] = float(raw * unit)
        else:
            value = reading.number(NAME, raw, _COUNTED, per=1 / unit, bits=64)
            if value is not None:
                counted[field] = value
    return counted
