"""Which two devices are the dies of one MI250 package? AMD SMI does not tell.

The power sensor of the first die covers both, so the pairs decide what a reading of power is about. They are found by
the serial number of the board that both sit on, else by the link between them, which is wider than to any other die,
else by their order, in which the two follow each other.
"""

from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.sanitise import is_sentinel, text

_DUAL_DIE_IDS = frozenset({0x7408, 0x740C})  # MI250X, MI250
_DIES = 2
"""Of a package."""

Pairs = Mapping[str, str]
"""Key of the first die of the package, by key of each die."""


class Die(NamedTuple):
    key: str
    handle: Any
    asleep: bool


def is_dual_die(asic: Mapping[str, Any]) -> bool:
    raw = asic.get("device_id")
    try:
        device = int(raw, 16) if isinstance(raw, str) else raw
    except ValueError:
        device = None
    return (isinstance(device, int) and device in _DUAL_DIE_IDS) or "MI250" in str(asic.get("market_name"))


def pair(calls: Calls, dies: Sequence[Die], proven: MutableMapping[frozenset[str], Pairs]) -> Pairs:
    """Pair dies, which are given in the order of AMD SMI. Those that cannot be paired are packages of their own.

    `proven`: pairs that were found by evidence, by the keys of all dies: a call that fails later changes nothing.
    """
    if not dies:
        return {}
    keys = frozenset(die.key for die in dies)
    if keys not in proven and not any(die.asleep for die in dies):
        for evidence in (_by_board, _by_link):
            found = evidence(calls, dies)
            if found is not None:
                proven[keys] = found
                break
    return proven[keys] if keys in proven else _by_order(dies)


def _by_board(calls: Calls, dies: Sequence[Die]) -> Pairs | None:
    """Pair by the serial number of the board; None unless there are exactly two dies of each."""
    boards = defaultdict(list)
    for die in dies:
        serial = text(mapping(calls.whatever("amdsmi_get_gpu_board_info", die.handle)).get("product_serial"))
        if serial is None:
            return None
        boards[serial].append(die)
    return _pairs(list(boards.values()))


def _by_link(calls: Calls, dies: Sequence[Die]) -> Pairs | None:
    """Pair each die with the one to which it has the widest link; None unless that is mutual, and no other is as wide.

    Between the dies of a package are four links of 50 GB/s, between those of two packages two, one, or none.
    """
    widths: dict[str, dict[str, float]] = defaultdict(dict)
    for number, die in enumerate(dies):
        for other in dies[number + 1 :]:
            answer = calls.whatever("amdsmi_get_minmax_bandwidth_between_processors", die.handle, other.handle)
            width = mapping(answer).get("max_bandwidth")
            if not isinstance(width, int) or is_sentinel(width):
                width = 0  # there is no link
            widths[die.key][other.key] = widths[other.key][die.key] = width
    if len(dies) < _DIES:
        return None
    best: dict[str, str] = {}
    for key, others in widths.items():
        widest = [other for other, width in others.items() if width and width == max(others.values())]
        if len(widest) != 1:
            return None
        best[key] = widest[0]
    if any(best[other] != key for key, other in best.items()):
        return None
    place = {die.key: number for number, die in enumerate(dies)}
    return _pairs([[die, dies[place[best[die.key]]]] for die in dies if place[die.key] < place[best[die.key]]])


def _pairs(packages: Sequence[Sequence[Die]]) -> Pairs | None:
    """Return the key of the first of each two; None unless all are two, and no die is in two packages."""
    if not packages or any(len(package) != _DIES for package in packages):
        return None
    found = {die.key: package[0].key for package in packages for die in package}
    return found if len(found) == _DIES * len(packages) else None


def _by_order(dies: Sequence[Die]) -> Pairs:
    """Pair neighbours. Of an odd number none can be told."""
    if len(dies) % _DIES:
        return {die.key: die.key for die in dies}
    return {die.key: dies[number - number % _DIES].key for number, die in enumerate(dies)}
