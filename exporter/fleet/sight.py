"""What one provider sees of one GPU: its identity, its newest readings, and whether it answers there."""

import math

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.fleet.readings import Readings, Taken
from exporter.model import Device, GpuState, Group, Sample

NO_GROUPS: frozenset[Group] = frozenset()
READABLE = frozenset({GpuState.OK, GpuState.STALE})
"""States in which readings are shown, as far as they hold."""


class Sight:
    """From the first time that the provider lists the device. Times are monotonic seconds."""

    def __init__(self, provider: str, device: Device, sampling: SamplingConfig, now: float) -> None:
        self.provider = provider
        self.device = device
        """Under the key of the card."""
        self.listed = True
        """Whether the provider enumerates it."""
        self.lost_at: float | None = None
        self.hung = False
        """Whether the supervisor has it in question."""
        self.readings = Readings(sampling)
        self.silent_since = now
        """Since when no reading is expected to be there already: first sight, loss, return, sleep, end of a release."""
        self.state = GpuState.OK
        self.shown = NO_GROUPS
        """Groups whose readings hold."""
        self.gives_energy_since: float | None = None
        """Since when it has given power or an accumulator without an interruption; None: it does not."""
        self.energy_until = -math.inf
        """How long the newest power or accumulator holds."""
        self.events: frozenset[str] = frozenset()
        """Kinds of error events that it listens to."""
        self._cut_off = False
        """Whether the provider is down, so that nothing is read."""
        self._is_away = False
        """Whether it was given up and has not been read since: a worker that starts and crashes gives no reading."""
        self._asleep = False
        self._asleep_at = now
        """When it was last seen to be."""
        self._is_back = True
        """Whether it was read since it was released."""
        self._fresh: set[Group] = set()
        """Groups with readings that `look` has not seen."""
        self._same_until = -math.inf
        """Until when neither state nor what is shown changes by the passing of time."""

    @property
    def lost(self) -> bool:
        return self.lost_at is not None or not self.listed

    @property
    def tells_nothing(self) -> bool:
        """Whether its provider is up and lists the device, as AMD SMI lists APUs, and has no reading of it."""
        return self.listed and not self._cut_off and self.state is GpuState.STALE

    def answers(self, now: float) -> bool:
        """Tell whether a reading can be expected of it: it is there, not in question, and its provider not given up."""
        return not self.lost and not self.hung and not self.given_up(now)

    def given_up(self, now: float) -> bool:
        """Tell whether the provider has been down for so long that what it read before is not shown any more."""
        return self._is_away or (self._cut_off and now - self._last_taken > groups.CUT_OFF_SECONDS)

    def gives_energy(self, now: float) -> bool:
        return self.gives_energy_since is not None and now <= self.energy_until and self.answers(now)

    def may_give_energy(self, now: float) -> bool:
        """Tell whether energy has not been read yet, or its newest reading holds, or is missing for a moment only."""
        missed = max(self.energy_until, self.silent_since + self.readings.lifetime(Group.ENERGY))
        return self.answers(now) and (self._asleep or now <= missed)

    def awaits_energy(self, now: float) -> bool:
        """Tell whether its first reading of energy is about to come."""
        unread = self.readings.read_at(Group.ENERGY) < self.silent_since
        return unread and not self._asleep and self.may_give_energy(now)

    def relieves(self, now: float) -> bool:
        """Tell whether nobody else needs to read the energy often: this provider does, or the device sleeps."""
        return not self._cut_off and self.answers(now) and (self._asleep or self.gives_energy(now))

    def is_of_use(self, now: float) -> bool:
        """Tell whether it gives what makes a GPU usable to whoever watches it: power, load or memory."""
        energy, load = self.readings.valid(Group.ENERGY, now), self.readings.valid(Group.LOAD, now)
        if energy is not None and energy.power_watts is not None:
            return True
        return load is not None and (load.utilization_ratio is not None or load.memory_used_bytes is not None)

    def see(self, device: Device, now: float) -> None:
        """Be listed."""
        if device != self.device:
            self.device = device
        if not self.listed:
            self.listed = True
            self.silent_since = now

    def unlist(self, now: float) -> frozenset[Group]:
        """Be listed no more. Return the groups that are forgotten."""
        self.listed = False
        self.silent_since = now
        return self.forget()

    def suspect(self, *, hung: bool) -> None:
        self.hung = hung
        self.gives_energy_since = None

    def cut_off(self, *, down: bool) -> None:
        """Take whether the provider is down."""
        if down != self._cut_off:
            self._cut_off = down
            self._same_until = -math.inf
            self.gives_energy_since = None

    def let_go(self) -> frozenset[Group]:
        """Be released: what was read is of a GPU that may be another one, reset or repartitioned, when it is back."""
        self._asleep = False
        self._is_back = False
        return self.forget()

    def take_up(self, now: float) -> None:
        """Be free to be read again."""
        if not self.lost:
            self.silent_since = now

    def lose(self, now: float) -> frozenset[Group]:
        """Take that the device is gone."""
        if self.lost_at is None:
            self.lost_at = self.silent_since = now
        return self.forget()

    def sleep(self, now: float) -> frozenset[Group]:
        """Take that the device is suspended."""
        self._come(now, asleep=True)
        self._asleep_at = now
        return self.forget()

    def take(self, sample: Sample, now: float) -> Taken:
        """Add the readings of a sample."""
        self._come(now, asleep=False)
        taken = self.readings.take(sample)
        self._fresh.update(taken.fresh)
        if Group.ENERGY in taken.fresh and (sample.power_watts is not None or sample.energy_counter_joules is not None):
            if self.gives_energy_since is None or now > self.energy_until:
                self.gives_energy_since = now
            self.energy_until = self.readings.until(Group.ENERGY)
        if taken.given_at is None:
            self._same_until = -math.inf
        return taken

    def forget(self) -> frozenset[Group]:
        """Let nothing that was read hold any longer, and return of which groups that was."""
        self._same_until = -math.inf
        self.gives_energy_since = None
        self.energy_until = -math.inf
        return frozenset(self.readings.forget())

    def look(self, now: float, *, released: bool) -> frozenset[Group]:
        """Bring `state` and `shown` up to date; return the groups that are shown and were not, or the reverse."""
        self._is_away = self.given_up(now)
        state = self._judged(now, released=released)
        if state not in READABLE or self.given_up(now):
            shown = NO_GROUPS
        elif now <= self._same_until and self._fresh <= self.shown:
            shown = self.shown
        else:
            shown = self.readings.all_valid(now)
        changed = shown ^ self.shown
        if changed or self._fresh or state is not self.state:
            self._fresh.clear()
            self.state, self.shown = state, shown
            self._same_until = self._until_change() if state in READABLE else -math.inf
        return changed

    def _come(self, now: float, *, asleep: bool) -> None:
        """Take a read that found the device."""
        if self.lost_at is not None or self._asleep != asleep:
            self.silent_since = now
        self._is_back, self._is_away = True, False
        self.lost_at = None
        self._asleep = asleep

    def _until_change(self) -> float:
        until = self.readings.same_until(self.shown, self.silent_since)
        return min(until, self._last_taken + groups.CUT_OFF_SECONDS) if self._cut_off else until

    @property
    def _last_taken(self) -> float:
        return self._asleep_at if self._asleep else self.readings.last_taken(self.silent_since)

    def _judged(self, now: float, *, released: bool) -> GpuState:
        if self.lost:
            return GpuState.LOST
        if released:
            return GpuState.RELEASED
        if self.hung:
            return GpuState.HUNG
        if not self._is_back:
            return GpuState.RELEASED if now - self.silent_since <= groups.CUT_OFF_SECONDS else GpuState.STALE
        if self._asleep and not self.given_up(now):
            return GpuState.ASLEEP
        return GpuState.STALE if self._is_stale(now) else GpuState.OK

    def _is_stale(self, now: float) -> bool:
        if self.given_up(now):
            return True
        if now <= self._same_until and self.state is GpuState.OK:
            return False
        return self.readings.is_stale(now, self.silent_since)
