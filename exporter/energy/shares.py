"""Who is charged for a device's joules: by allocation for the idle part, by measured work for the active one.

Shares are of the whole; what they leave goes to nobody. Memory says nothing about work and is not asked.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Shares = Mapping[str, float]
"""By key of the workload, each above 0, together at most 1 but for rounding."""


class Use(NamedTuple):
    """One process on the device."""

    owner: str | None
    """Key of the workload; None: it could not be placed."""
    work: float | None
    """Its share of the device's time, or anything in proportion to it; None: not measured."""
    partition: str | None = None


class Hold(NamedTuple):
    """One allocation of the device, or of a partition of it."""

    owner: str
    ratio: float
    """Of the whole device."""
    partition: str | None = None


def allocation_ratios(holds: Iterable[Hold]) -> Shares:
    """Return what part of the device each workload was given, at most all of it."""
    ratios: dict[str, float] = {}
    for hold in holds:
        if hold.ratio > 0:
            ratios[hold.owner] = min(1.0, ratios.get(hold.owner, 0.0) + hold.ratio)
    return ratios


def idle_shares(ratios: Shares) -> Shares:
    """Return the shares of the idle part: as allocated, and in proportion where more was given away than there is."""
    scale = max(1.0, math.fsum(ratios.values()))
    return {owner: ratio / scale for owner, ratio in ratios.items() if ratio / scale > 0}


def active_shares(
    uses: Sequence[Use] | None, holds: Sequence[Hold], loads: Mapping[str, float] | None = None
) -> Shares:
    """Return the shares of the active part.

    `uses`: () is nobody, None not known. `loads`: the work in each partition of a device that has any; None where it
    has none, or that was not measured. A sole tenant gets it all, measured or not; several share by their work, if that
    was measured of all of them.
    """
    if uses is None:
        return _alone(allocation_ratios(holds))
    owners = {use.owner for use in uses}
    if not owners:  # the list of processes is late, or they ended since
        owners = {hold.owner for hold in holds}
    if len(owners) == 1:
        (owner,) = owners
        return {} if owner is None else {owner: 1.0}
    if uses and all(use.work is not None for use in uses):
        return _in_proportion((use.owner, use.work or 0.0) for use in uses)
    if loads is not None and all(use.partition is not None for use in uses):
        return _in_proportion((_tenant(partition, uses, holds), work) for partition, work in loads.items())
    return {}


def _alone(ratios: Shares) -> Shares:
    """Return all for the one to whom the whole device was given, if there is one."""
    return {owner: 1.0 for owner, ratio in ratios.items() if ratio == 1 and len(ratios) == 1}


def _tenant(partition: str, uses: Sequence[Use], holds: Sequence[Hold]) -> str | None:
    """Return who alone is in the partition; None: nobody, or several."""
    owners = {use.owner for use in uses if use.partition == partition}
    if not owners:
        owners = {hold.owner for hold in holds if hold.partition == partition}
    return owners.pop() if len(owners) == 1 else None


def _in_proportion(work: Iterable[tuple[str | None, float]]) -> Shares:
    done: dict[str | None, float] = {}
    for owner, amount in work:
        if amount > 0:
            done[owner] = done.get(owner, 0.0) + amount
    whole = math.fsum(done.values())
    return {owner: amount / whole for owner, amount in done.items() if owner is not None and amount / whole > 0}
