"""Which of the providers that see one GPU counts: for its state and place on the page, and for its energy.

Sights are in order of preference, and there is at least one.
"""

from collections.abc import Sequence

from exporter.fleet.sight import Sight
from exporter.model import GpuState

RETURN_SECONDS = 60.0
"""For how long a preferred provider has to give energy before the ledger goes back to it.

Each change leaves a gap and costs an accumulator what it has earned, so a library that comes and goes must not have its
way each time.
"""


def leading(sights: Sequence[Sight], now: float) -> Sight:
    """Return the sight whose state is that of the card. All of them have been looked at.

    What a preferred provider says of a GPU that hangs or is lost is masked only by one that gives power, load or
    memory: sysfs has the width of the PCIe link of any card.
    """
    first, *others = sights
    if first.state.answers or not others:
        return first
    for sight in others:
        if sight.state is GpuState.ASLEEP or (sight.state is GpuState.OK and sight.is_of_use(now)):
            return sight
    # A provider that is down knows less of the GPU than one that says what is wrong with it.
    spoken = (sight for sight in sights if sight.state is not GpuState.OK and not sight.given_up(now))
    return next(spoken, first)


def metering(sights: Sequence[Sight], current: str, now: float) -> Sight | None:
    """Return the sight whose power and accumulator go into the ledger; None: that is not known yet.

    `current`: the provider whose readings the ledger holds; empty: it holds none.
    """
    holder = next((sight for sight in sights if sight.provider == current), None)
    held = holder if holder is not None and holder.may_give_energy(now) else None
    for sight in sights:
        if sight is held:
            return sight
        if sight.gives_energy(now):
            since = sight.gives_energy_since
            if held is None or (since is not None and now - since >= RETURN_SECONDS):
                return sight
        elif not current and sight.awaits_energy(now):
            return None
    return holder
