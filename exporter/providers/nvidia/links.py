"""NVLink: which links a GPU has, whether they are up, what went over them and what went wrong.

All of it is asked for in one call, as fields whose scope is the number of the link. Which of them a GPU knows depends
on its generation: what it does not answer for any link is not asked for again until it is identified anew.
"""

from collections.abc import Mapping

from exporter.model import LinkSample
from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.reading import Field, Reading
from exporter.providers.sanitise import COUNT, Range

NAME = "links"
COUNT_OF_LINKS: Field = (91, 0)
_MOST_LINKS = 36  # Blackwell has 18; bounds the call should the library answer garbage
_LINKS = Range(0, _MOST_LINKS)
_MOVED = Range(0.0, 2.0**74)
"""Of bytes: a link of Hopper moves more than 2^53 of them within a week."""

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


def link_fields(gpu: Gpu) -> Mapping[Field, str]:
    """Return the fields to ask for about links that are known to be there."""
    return gpu.link_fields or {}


def links(reading: Reading, gpu: Gpu, fields: Mapping[Field, float]) -> tuple[LinkSample, ...] | None:
    """Return the links; (): none, None: it is not told. `fields`: those that were read already."""
    count = reading.number(NAME, fields.get(COUNT_OF_LINKS), _LINKS)
    if count is None:
        return None
    numbers = range(int(count))
    if gpu.link_fields is None and numbers:
        fields = reading.fields({field: NAME for number in numbers for field in _candidates(number)})
        known = {_kind(field) for field in fields}
        asked = {field: NAME for number in numbers for field in _candidates(number) if _kind(field) in known}
        gpu.link_fields = None if reading.broke(NAME) else asked
    else:
        asked = dict(link_fields(gpu))
    return tuple(_link(reading, number, asked, fields) for number in numbers)


def _candidates(number: int) -> list[Field]:
    return [*((field, number) for field in _OF_EACH), *_single(number).values()]


def _single(number: int) -> dict[str, Field]:
    six, place = divmod(number, _SIX)
    return {error: (first[six] + place, 0) for error, first in _SINGLE.items()} if six < 2 else {}  # noqa: PLR2004


def _kind(field: Field) -> int | str:
    """Return what a field has in common with those that tell the same of the other links."""
    single = (error for error, first in _SINGLE.items() for f in first if f <= field[0] < f + _SIX)
    return next(single, field[0])


def _link(reading: Reading, number: int, asked: Mapping[Field, str], fields: Mapping[Field, float]) -> LinkSample:
    """Make a link of its fields. Which of several is taken depends on what is asked for, not on what broke for once."""

    def first(*candidates: Field) -> Field | None:
        return next((field for field in candidates if field in asked), None)

    def moved(ids: tuple[int, ...]) -> float | None:
        field = first(*((each, number) for each in ids))
        if field is None:
            return None
        return reading.number(NAME, fields.get(field), _MOVED, per=1 / 1024 if field[0] in _IN_KIB else 1, bits=64)

    single = _single(number)
    errors = {error: first(*((each, number) for each in ids)) or single.get(error) for error, ids in _ERRORS.items()}
    if (_STATE, number) in asked:
        state = fields.get((_STATE, number))
        up = None if state is None else state in _UP
    else:
        active = reading.get(NAME, "nvmlDeviceGetNvLinkState", number)
        up = None if active is None else active == 1
    counts = ((error, fields.get(field)) for error, field in errors.items() if field is not None)
    return LinkSample(
        kind="nvlink",
        link=str(number),
        up=up,
        receive_bytes=moved(_RECEIVE),
        transmit_bytes=moved(_TRANSMIT),
        errors=reading.numbers(NAME, counts, COUNT, bits=64),
    )
