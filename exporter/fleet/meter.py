"""Which ledgers a device has, and which of its readings go into them."""

from collections.abc import Iterator

import msgspec

from exporter.config import SamplingConfig, is_averaged
from exporter.energy import EnergyReading, Ledger, advance, detached
from exporter.energy.reboot import after_reboot, awaits_reading
from exporter.fleet.record import MeterRecord
from exporter.fleet.trail import Decision, Trail, Why
from exporter.model import EnergyAccount, Sample, Scope

_OWN: frozenset[Scope] = frozenset({"gpu", "package"})
"""What a device may call its own energy; a module's is that of its CPU and memory as well."""


class Meter:
    """The ledgers of one device: its own, and that of the module it sits on. Each is kept within one scope."""

    def __init__(self, sampling: SamplingConfig) -> None:
        self._sampling = sampling
        self._ledger: Ledger | None = None
        self._module: Ledger | None = None
        self._scope: Scope | None = None
        self._scope_of_power = False
        self._period = sampling.energy_period(averaged=False)
        self._start_timestamp = 0.0
        self._trail = Trail()
        """Of its own ledger."""

    def observe(
        self, sample: Sample, at: float, wall: float, temperature: float | None, utilization: float | None
    ) -> None:
        """Add the energy readings of a sample taken at monotonic time `at`, which was `wall` in Unix time."""
        if sample.power_kind is not None:
            averaged = is_averaged(sample.power_kind, sample.power_window_seconds)
            self._period = self._sampling.energy_period(averaged=averaged)
        self._choose_scope(sample)
        power = sample.power_watts if sample.power_scope == self._scope else None
        counter = sample.energy_counter_joules if sample.energy_counter_scope == self._scope else None
        if self._ledger is not None or power is not None or counter is not None:
            if self._ledger is None:
                self._ledger = Ledger.start()
                self._start_timestamp = wall
            before = self._ledger
            self._ledger = advance(
                before,
                EnergyReading(
                    at=at,
                    period_seconds=self._period,
                    power_watts=power,
                    power_window_seconds=sample.power_window_seconds,
                    limit_watts=_limit(sample),
                    counter_joules=counter,
                    counter_range_joules=sample.energy_counter_range_joules,
                    temperature_celsius=temperature,
                    utilization_ratio=utilization,
                ),
            )
            self._trail.note(before, self._ledger, power, counter)
        self._observe_module(sample, at)

    def detach(self) -> None:
        """Another provider reads the device from here on: no step spans the two."""
        self._detach()
        self._module = self._module and detached(self._module)
        self._scope, self._scope_of_power = None, False

    def record(self) -> MeterRecord | None:
        """Return what is kept over a restart; None: nothing was counted yet."""
        if self._ledger is None and self._module is None:
            return None
        return MeterRecord(
            start_timestamp=self._start_timestamp,
            ledger=self._ledger,
            module=self._module,
            scope=self._scope,
            scope_of_power=self._scope_of_power,
        )

    def restore(self, record: MeterRecord, now: float) -> None:
        """Go on from a record, made in this boot or already brought over from another one."""
        self._start_timestamp = record.start_timestamp
        self._ledger = _awaiting(record.ledger, now)
        self._module = _awaiting(record.module, now)
        self._scope, self._scope_of_power = record.scope, record.scope_of_power
        if self._ledger is not None:
            self._trail.mark(self._ledger, self._ledger, now, Why.RESTORED)

    def account(self) -> EnergyAccount | None:
        """Return what is published; None: the device never showed power or an accumulator of its own."""
        ledger = self._ledger
        if ledger is None:
            return None
        return EnergyAccount(
            total_joules=ledger.total_joules,
            by_source_joules=ledger.joules_by_source,
            hardware_joules=ledger.hardware_joules,
            integrated_joules=ledger.integrated_joules,
            qualified=ledger.qualified,
            divergence_ratio=ledger.divergence_ratio,
            uncertainty_ratio=ledger.uncertainty_ratio,
            covered_seconds=ledger.covered_seconds,
            gap_seconds=ledger.gap_seconds,
            faults=msgspec.structs.asdict(ledger.faults),
            start_timestamp=self._start_timestamp,
        )

    def decisions(self) -> Iterator[Decision]:
        """Yield what its own ledger made of its newest readings, the newest first."""
        return self._trail.decisions()

    @property
    def progress(self) -> tuple[float, float] | None:
        """Total joules and the seconds whose energy is in them; None: there is no account."""
        ledger = self._ledger
        return None if ledger is None else (ledger.total_joules, ledger.covered_seconds)

    @property
    def module_joules(self) -> float | None:
        """Accepted steps of the module's accumulator; None: there is none."""
        return self._module.hardware_joules if self._module is not None else None

    def _choose_scope(self, sample: Sample) -> None:
        """Take the scope of power; that of the accumulator only while there was never any power."""
        scope = self._scope
        if sample.power_watts is not None and sample.power_scope in _OWN:
            scope, self._scope_of_power = sample.power_scope, True
        elif (
            not self._scope_of_power
            and sample.energy_counter_joules is not None
            and sample.energy_counter_scope in _OWN
        ):
            scope = sample.energy_counter_scope
        if scope != self._scope:
            self._detach()
        self._scope = scope

    def _detach(self) -> None:
        before = self._ledger
        if before is not None:
            self._ledger = detached(before)
            self._trail.mark(before, self._ledger, before.at, Why.DETACHED)

    def _observe_module(self, sample: Sample, at: float) -> None:
        counter, size = sample.module_energy_counter_joules, None
        if counter is None and sample.energy_counter_scope == "module":
            counter, size = sample.energy_counter_joules, sample.energy_counter_range_joules
        if counter is not None:
            # The limits of a sample are those of the GPU, so the module's steps are held to the default bound.
            reading = EnergyReading(
                at=at, period_seconds=self._period, counter_joules=counter, counter_range_joules=size
            )
            self._module = advance(self._module or Ledger.start(), reading)


def _awaiting(ledger: Ledger | None, now: float) -> Ledger | None:
    # What waited for its device since the boot has covered none of that time.
    return after_reboot(ledger, now) if ledger is not None and awaits_reading(ledger) else ledger


def _limit(sample: Sample) -> float | None:
    limits = [limit for limit in (sample.power_limit_watts, sample.power_limit_default_watts) if limit is not None]
    return max(limits, default=None)
