"""What the graphics and media units (GTs) of an Intel GPU say: their clocks, and what holds these down.

i915 has them under the DRM device (drm/cardN/gt/gtM), xe under the PCI device, by tile (tileN/gtM).
"""

import re
from collections.abc import Mapping

import msgspec

from exporter.providers.drm.cards import Card
from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import HERTZ, RATIO

_TILE = re.compile(r"tile\d+")
_GT = re.compile(r"gt(\d+)")
_MEGAHERTZ = 1e6
_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("pl1", "pl2", "psys_pl1", "psys_pl2"), "sw_power_cap"),
    **dict.fromkeys(("pl4", "vr_tdc", "psys_crit", "iccmax"), "board_limit"),
    **dict.fromkeys(("thermal", "ratl", "soc_thermal", "soc_avg_thermal"), "hw_thermal"),
    **dict.fromkeys(("vr_thermal", "vr_thermalert"), "voltage_regulator_thermal"),
    "mem_thermal": "memory_thermal",
    "prochot": "processor_hot",
}
"""Reason by the driver's word for it."""


class Throttle(msgspec.Struct, frozen=True):
    """The flags of one GT."""

    status: str
    """Path of the one that is set when any is."""
    flags: Mapping[str, str]
    """Reason by path."""


class Gts(msgspec.Struct, frozen=True):
    """Paths relative to the card's folder."""

    tiles: tuple[str, ...] = ()
    """Of xe."""
    clocks: Mapping[str, tuple[tuple[str, str], ...]] = {}
    """By domain: of each GT where its actual and its requested clock are."""
    throttles: tuple[Throttle, ...] = ()


def find_gts(card: Card, reading: Reading) -> Gts:
    """Look where the GTs of a card are. The first of each tile renders, another one is that of the media engines."""
    tiles = tuple(sorted(name for name in reading.names("") if _TILE.fullmatch(name)))
    if tiles:
        return _gts_of_xe(tiles, reading)
    place = f"drm/card{card.number}"
    units = _numbered(reading, f"{place}/gt")
    throttles = []
    for unit in units:
        throttle = _throttle(reading, unit, "throttle_reason_status", "throttle_reason_")
        if throttle is not None:
            throttles.append(throttle)
    found = [(f"{unit}/rps_act_freq_mhz", f"{unit}/rps_cur_freq_mhz") for unit in units]
    # Before Linux 5.18 the card has one pair.
    graphics = tuple(found[:1]) or ((f"{place}/gt_act_freq_mhz", f"{place}/gt_cur_freq_mhz"),)
    return Gts((), {"graphics": graphics, "video": tuple(found[1:])}, tuple(throttles))


def clocks(reading: Reading, gts: Gts) -> dict[str, float]:
    """Read the clocks by domain, their mean where there are several tiles. One that is gated has 0."""
    found = {}
    for domain, pairs in gts.clocks.items():
        values = [_clock(reading, *pair) for pair in pairs]
        known = [value for value in values if value is not None]
        if known:
            found[domain] = sum(known) / len(known)
    return found


def throttled(reading: Reading, gts: Gts) -> dict[str, bool]:
    """Read the reasons, each of any GT."""
    found: dict[str, bool] = {}
    for throttle in gts.throttles:
        held = reading.number("throttled", throttle.status, RATIO)
        for path, reason in throttle.flags.items():
            flag = held if not held else reading.number("throttled", path, RATIO)
            if flag is not None:
                found[reason] = found.get(reason, False) or bool(flag)
    return found


def _gts_of_xe(tiles: tuple[str, ...], reading: Reading) -> Gts:
    graphics: list[tuple[str, str]] = []
    video: list[tuple[str, str]] = []
    throttles = []
    for tile in tiles:
        for position, unit in enumerate(_numbered(reading, tile)):
            pair = (f"{unit}/freq0/act_freq", f"{unit}/freq0/cur_freq")
            (video if position else graphics).append(pair)
            throttle = _throttle(reading, f"{unit}/freq0/throttle", "status", "reason_")
            if throttle is not None:
                throttles.append(throttle)
    return Gts(tiles, {"graphics": tuple(graphics), "video": tuple(video)}, tuple(throttles))


def _numbered(reading: Reading, folder: str) -> list[str]:
    numbers = sorted(int(match[1]) for name in reading.names(folder) if (match := _GT.fullmatch(name)))
    return [f"{folder}/gt{number}" for number in numbers]


def _throttle(reading: Reading, folder: str, status: str, prefix: str) -> Throttle | None:
    names = reading.names(folder)
    if status not in names:
        return None
    words = {name: name.removeprefix(prefix) for name in sorted(names) if name.startswith(prefix)}
    return Throttle(
        f"{folder}/{status}",
        {f"{folder}/{name}": _REASONS[word] for name, word in words.items() if word in _REASONS},
    )


def _clock(reading: Reading, actual: str, requested: str) -> float | None:
    value = reading.number("clock_hertz", actual, HERTZ, _MEGAHERTZ)
    return reading.number("clock_hertz", requested, HERTZ, _MEGAHERTZ) if value is None else value
