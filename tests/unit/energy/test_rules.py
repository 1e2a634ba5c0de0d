"""The rules of the ledger, one by one, at their edges."""

import itertools
from random import Random

import msgspec
import pytest

from exporter.energy import EnergyReading, Ledger, advance, detached
from exporter.energy.crosscheck import CrossCheck, Slice, compare
from exporter.energy.ledger import Faults
from tests.unit.energy import sensors
from tests.unit.energy.sensors import history, last, readings

WATTS = 400.0
START = 1_000.0


def reading(at: float, watts: float | None, counter: float | None, **more: float) -> EnergyReading:
    fields = {"power_window_seconds": 1.0, "limit_watts": 700.0, **more}
    return EnergyReading(at=at, power_watts=watts, counter_joules=counter, **fields)


def follow(ledger: Ledger, *rows: tuple[float, float | None, float | None], **more: float) -> Ledger:
    return last([reading(at, watts, counter, **more) for at, watts, counter in rows], ledger)


def qualified(seconds: int = 70) -> Ledger:
    """Return a ledger that has read an honest accumulator of 400 W at 1 Hz up to this second, and follows it."""
    ledger = follow(Ledger.start(), *((float(t), WATTS, START + WATTS * t) for t in range(seconds + 1)))
    assert ledger.qualified
    assert ledger.total_joules == pytest.approx(WATTS * seconds)
    return ledger


def raw(t: float) -> float:
    return START + WATTS * t


class TestIntegral:
    def test_the_first_reading_adds_nothing_but_the_total_exists(self) -> None:
        ledger = follow(Ledger.start(), (50.0, WATTS, None))
        assert ledger.total_joules == 0
        assert ledger.integrated_joules == 0
        assert ledger.hardware_joules is None

    def test_true_times_are_used_so_that_jitter_costs_nothing(self) -> None:
        times = list(sensors.jittered(Random(3), 5_000, 1.0))
        ledger = last(readings(times, lambda _: 412.5, None))
        assert ledger.total_joules == pytest.approx(412.5 * times[-1], rel=1e-12)

    @pytest.mark.parametrize(("period", "pause", "bridged"), [(0.1, 2.0, True), (0.1, 2.01, False)])
    def test_fast_readings_bridge_two_seconds(self, period: float, pause: float, bridged: bool) -> None:
        self.pause(period, pause, bridged=bridged)

    @pytest.mark.parametrize(("period", "pause", "bridged"), [(1.0, 5.0, True), (1.0, 5.01, False), (5.0, 24.0, True)])
    def test_slow_readings_bridge_five_periods(self, period: float, pause: float, bridged: bool) -> None:
        self.pause(period, pause, bridged=bridged)

    def pause(self, period: float, pause: float, *, bridged: bool) -> None:
        ledger = follow(Ledger.start(), (0.0, WATTS, None), (pause, WATTS, None), period_seconds=period)
        assert ledger.total_joules == (pytest.approx(WATTS * pause) if bridged else 0)
        assert ledger.covered_seconds == (pause if bridged else 0)
        assert ledger.gap_seconds == (0 if bridged else pause)

    def test_a_minute_without_readings_is_a_gap_that_is_not_filled(self) -> None:
        rows = [(float(t), WATTS, None) for t in (*range(11), *range(70, 81))]
        ledger = follow(Ledger.start(), *rows)
        assert ledger.total_joules == pytest.approx(WATTS * 20)
        assert (ledger.covered_seconds, ledger.gap_seconds) == (20, 60)

    def test_a_power_reading_that_is_missing_once_is_bridged(self) -> None:
        ledger = follow(Ledger.start(), (0.0, 100.0, None), (1.0, None, None), (2.0, 300.0, None))
        assert ledger.total_joules == 400
        assert ledger.gap_seconds == 0

    def test_power_that_stays_away_is_counted_as_a_gap_while_it_lasts(self) -> None:
        rows = [(0.0, WATTS, None), (1.0, WATTS, None), *((float(t), None, None) for t in range(2, 61))]
        ledger = follow(Ledger.start(), *rows)
        assert ledger.total_joules == WATTS
        assert ledger.gap_seconds == 59


class TestQualification:
    @pytest.mark.parametrize(("factor", "admitted"), [(0.91, True), (0.89, False), (1.09, True), (1.11, False)])
    def test_a_minute_within_ten_percent_admits_it(self, factor: float, admitted: bool) -> None:
        states = list(history(reading(float(t), WATTS, raw(factor * t)) for t in range(200)))
        assert states[59].qualified is False
        assert [state.qualified for state in (states[60], states[-1])] == [admitted, admitted]

    def test_the_change_of_source_is_no_jump(self) -> None:
        states = list(history(reading(float(t), WATTS, raw(1.05 * t)) for t in range(120)))
        steps = [after.total_joules - before.total_joules for before, after in itertools.pairwise(states)]
        assert set(map(round, steps)) == {400, 420}
        assert states[-1].joules_by_source == {"hardware": pytest.approx(59 * 420), "integrated": 60 * 400}

    def test_no_power_and_no_energy_agree_on_nothing(self) -> None:
        states = list(history(reading(float(t), 0.0, START + 1e-4 * t) for t in range(400)))
        assert not states[-1].qualified
        assert states[-1].divergence_ratio is None

    def test_instant_power_once_a_second_takes_a_whole_window_and_shows_no_divergence(self) -> None:
        stream = (reading(float(t), WATTS, raw(t), power_window_seconds=0.0) for t in range(400))
        states = list(history(stream))
        assert [state.qualified for state in (states[299], states[300])] == [False, True]
        assert all(state.divergence_ratio is None for state in states)

    def test_a_window_that_is_not_known_is_compared_at_ten_hertz_only(self) -> None:
        for period, shown in ((0.1, True), (1.0, False)):
            stream = (
                EnergyReading(at=t * period, period_seconds=period, power_watts=WATTS, counter_joules=raw(t * period))
                for t in range(round(310 / period))
            )
            assert (last(stream).divergence_ratio is not None) is shown

    def test_divergence_below_the_alarm_line_is_shown_and_keeps_the_accumulator(self) -> None:
        ledger = last(reading(float(t), WATTS, raw(1.03 * t)) for t in range(1_500))
        assert ledger.qualified
        assert ledger.divergence_ratio == pytest.approx(0.03)

    def test_one_bad_window_does_not_disqualify(self) -> None:
        def lapse(t: float) -> float:
            return raw(t) - 0.5 * WATTS * min(max(t - 100, 0), 290)

        assert last(reading(float(t), WATTS, lapse(t)) for t in range(2_000)).faults == Faults()

    def test_after_a_disqualification_a_new_minute_is_needed(self) -> None:
        check = CrossCheck(qualified=True, judged=2, slices=(Slice(30, 100, 100, 30),) * 2)
        flags = []
        for hardware in (*[40] * 16, 100, 100, 100, 100):
            check = compare(check, 30.0, hardware, 100.0, comparable=True)
            flags.append(check.qualified)
        # Two windows of mostly bad slices are full with the first good one after them; then two good ones are needed.
        assert flags == [True] * 17 + [False] * 2 + [True]


class TestSteps:
    def test_a_step_runs_from_the_read_before_the_anchor(self) -> None:
        """An update just after a read is seen late: the next step may hold almost two periods of energy."""
        late = follow(Ledger.start(), (0.0, WATTS, 0.0), (1.0, WATTS, 700.0), (2.0, WATTS, 700.0 + 1.2 * 700 * 2.09))
        assert late.faults.jump == 0
        jump = follow(Ledger.start(), (0.0, WATTS, 0.0), (1.0, WATTS, 700.0), (2.0, WATTS, 700.0 + 1.2 * 700 * 2.11))
        assert jump.faults.jump == 1
        assert jump.hardware_joules == 700

    def test_without_a_limit_the_bound_is_that_of_five_kilowatts(self) -> None:
        for joules, jumps in ((1.2 * 5_000 * 2.09, 0), (1.2 * 5_000 * 2.11, 1)):
            rows = [(0.0, WATTS, 0.0), (1.0, WATTS, 700.0), (2.0, WATTS, 700.0 + joules)]
            stream = [EnergyReading(at=at, power_watts=watts, counter_joules=joules) for at, watts, joules in rows]
            assert last(stream).faults.jump == jumps

    def test_the_anchor_moves_with_a_reset_and_with_a_jump(self) -> None:
        rows = [(70.0 + t, WATTS, value) for t, value in ((1, raw(71)), (2, 5.0), (3, 405.0), (4, 1e9), (5, 1e9 + 400))]
        ledger = follow(qualified(), *rows)
        assert ledger.faults == Faults(reset=1, jump=1)
        assert ledger.hardware_joules == pytest.approx(73 * WATTS)
        assert ledger.total_joules == pytest.approx(75 * WATTS)

    def test_absent_values_leave_the_anchor_where_it_is(self) -> None:
        ledger = follow(qualified(), (71.0, WATTS, None), (72.0, WATTS, None), (73.0, WATTS, raw(73)))
        assert ledger.faults == Faults()
        assert ledger.joules_by_source["hardware"] == pytest.approx(13 * WATTS)

    def test_a_wrap_is_a_step_and_a_time_long_enough_for_a_whole_turn_is_not(self) -> None:
        size = 65_536.0
        start = follow(Ledger.start(), (0.0, WATTS, size - 600), (1.0, WATTS, size - 200), counter_range_joules=size)
        wrapped = follow(start, (2.0, WATTS, 200.0), counter_range_joules=size)
        assert wrapped.hardware_joules == pytest.approx(800)
        assert wrapped.faults == Faults()
        away = follow(start, (90.0, WATTS, size - 100), counter_range_joules=size)
        assert away.hardware_joules == pytest.approx(400)
        assert away.faults == Faults()


class TestFrozen:
    def test_three_seconds_of_one_value_under_load_are_a_fault(self) -> None:
        rows = [(70.0 + t, WATTS, raw(70)) for t in (1.0, 2.0, 2.9)]
        still = follow(qualified(), *rows)
        assert still.faults == Faults()
        assert still.total_joules == pytest.approx(70 * WATTS)
        frozen = follow(still, (73.0, WATTS, raw(70)))
        assert frozen.faults == Faults(frozen=1)
        assert frozen.total_joules == pytest.approx(73 * WATTS)
        assert frozen.divergence_ratio is None

    def test_a_device_that_draws_nothing_is_not_frozen(self) -> None:
        ledger = follow(Ledger.start(), *((float(t), 0.001, 7.0) for t in range(100)))
        assert ledger.faults == Faults()

    def frozen(self) -> Ledger:
        """Return a ledger with 10 s of credit."""
        ledger = follow(qualified(), *((70.0 + t, WATTS, raw(70)) for t in range(1, 11)))
        assert ledger.total_joules == pytest.approx(80 * WATTS)
        return ledger

    def test_a_catch_up_is_paid_from_the_credit_and_so_are_the_steps_that_follow(self) -> None:
        rows = [(81.0, WATTS, raw(76)), (82.0, WATTS, raw(79)), (83.0, WATTS, raw(82)), (84.0, WATTS, raw(84))]
        totals = [state.total_joules / WATTS for state in history([reading(*row) for row in rows], self.frozen())]
        assert totals == pytest.approx([80, 80, 82, 84])

    def test_a_smaller_step_resumes_and_the_integral_of_its_interval_is_credited(self) -> None:
        rows = [(81.0, WATTS, raw(70.7)), (82.0, WATTS, raw(71.7)), (83.0, WATTS, raw(72.7))]
        totals = [state.total_joules / WATTS for state in history([reading(*row) for row in rows], self.frozen())]
        assert totals == pytest.approx([81, 82, 83])

    @pytest.mark.parametrize(("seconds", "then"), [(4.9, 81.0), (5.1, 80.0)])
    def test_half_the_credit_is_what_tells_one_from_the_other(self, seconds: float, then: float) -> None:
        ledger = follow(self.frozen(), (81.0, WATTS, raw(70 + seconds)))
        assert ledger.total_joules == pytest.approx(then * WATTS)

    def test_a_reset_after_a_freeze_drops_the_rest_of_the_credit(self) -> None:
        ledger = follow(self.frozen(), (81.0, WATTS, 10.0), (82.0, WATTS, 410.0))
        assert ledger.total_joules == pytest.approx(82 * WATTS)
        assert ledger.faults == Faults(frozen=1, reset=1)

    def test_a_second_freeze_before_the_credit_is_used_up_is_not_credited_twice(self) -> None:
        caught_up_by_half = follow(self.frozen(), (81.0, WATTS, raw(76)))
        ledger = follow(caught_up_by_half, *((81.0 + t, WATTS, raw(76)) for t in range(1, 6)))
        assert ledger.total_joules == pytest.approx(81 * WATTS)  # the accumulator's 76 and five seconds since
        assert follow(ledger, (87.0, WATTS, raw(87))).total_joules == pytest.approx(87 * WATTS)


class TestGaps:
    def test_a_qualified_accumulator_covers_a_gap(self) -> None:
        ledger = follow(qualified(), (130.0, WATTS, raw(130)), (131.0, WATTS, raw(131)))
        assert ledger.total_joules == pytest.approx(131 * WATTS)
        assert (ledger.covered_seconds, ledger.gap_seconds) == (131, 0)
        assert ledger.integrated_joules == pytest.approx(71 * WATTS)

    def test_a_reset_in_a_gap_leaves_the_gap(self) -> None:
        ledger = follow(qualified(), (130.0, WATTS, 5.0), (131.0, WATTS, 405.0))
        assert ledger.total_joules == pytest.approx(71 * WATTS)
        assert (ledger.covered_seconds, ledger.gap_seconds) == (71, 60)
        assert ledger.faults == Faults(reset=1)

    def test_an_accumulator_that_has_not_qualified_does_not_cover_one(self) -> None:
        rows = [(float(t), WATTS, raw(t)) for t in (*range(11), *range(70, 75))]
        ledger = follow(Ledger.start(), *rows)
        assert ledger.total_joules == pytest.approx(14 * WATTS)
        assert ledger.gap_seconds == 60
        assert ledger.hardware_joules == pytest.approx(74 * WATTS)

    def test_divergence_leaves_gaps_out(self) -> None:
        """An accumulator that was right over the gap has more joules than the integral, and is right all the same."""
        times = [float(t) for t in range(800) if t % 100 < 70]
        ledger = last(reading(t, WATTS, raw(t)) for t in times)
        assert ledger.divergence_ratio == pytest.approx(0)
        assert ledger.faults == Faults()


class TestWithoutPower:
    def test_an_accumulator_alone_is_the_total_but_has_not_earned_it(self) -> None:
        ledger = follow(Ledger.start(), *((float(t), None, raw(t)) for t in range(100)))
        assert ledger.total_joules == pytest.approx(99 * WATTS)
        assert ledger.joules_by_source["integrated"] == 0
        assert ledger.integrated_joules is None
        assert not ledger.qualified
        assert (ledger.covered_seconds, ledger.gap_seconds) == (99, 0)

    def test_its_resets_and_jumps_are_not_added(self) -> None:
        rows = [(0.0, None, 1e6), (1.0, None, 1e6 + 400), (2.0, None, 100.0), (3.0, None, 500.0), (4.0, None, 9e9)]
        ledger = follow(Ledger.start(), *rows)
        assert ledger.total_joules == 800
        assert ledger.faults == Faults(reset=1, jump=1)

    def test_the_first_power_reading_puts_it_to_the_test(self) -> None:
        ledger = follow(Ledger.start(), *((float(t), None, raw(t)) for t in range(11)))
        ledger = follow(ledger, *((float(t), WATTS, raw(0.5 * t + 100)) for t in range(11, 200)))
        assert not ledger.qualified
        assert ledger.joules_by_source["integrated"] == pytest.approx(188 * WATTS)

    def test_a_qualified_accumulator_goes_on_without_power(self) -> None:
        ledger = follow(qualified(), *((float(t), None, raw(t)) for t in range(71, 200)))
        assert ledger.total_joules == pytest.approx(199 * WATTS)
        assert ledger.gap_seconds == 0

    def test_no_sensor_at_all_gives_no_evidence(self) -> None:
        ledger = follow(Ledger.start(), (0.0, None, None), (1.0, None, None))
        assert ledger.hardware_joules is None
        assert ledger.integrated_joules is None


def stuck(seconds: int, watts: float = 46.19, **tracks: object) -> Ledger:
    made = []
    for t in range(seconds):
        fields = {name: track(t) for name, track in tracks.items()}
        made.append(reading(float(t), watts, raw(t), **fields))
    return last(made)


class TestStuckPower:
    def test_it_is_named_once_when_the_temperature_climbs(self) -> None:
        ledger = stuck(700, temperature_celsius=lambda t: 32 + 31 * t / 700)
        assert ledger.faults.power_frozen == 1

    def test_it_is_named_within_minutes_when_the_load_moves(self) -> None:
        ledger = stuck(70, utilization_ratio=lambda t: float(t % 40 < 20))
        assert ledger.faults.power_frozen == 1

    def test_a_board_that_warms_up_to_a_steady_load_is_sound(self) -> None:
        ledger = stuck(3_000, watts=WATTS, temperature_celsius=lambda t: 85 - 50 * 2.718 ** (-t / 80))
        assert ledger.faults == Faults()

    def test_a_value_that_differs_once_a_minute_is_sound(self) -> None:
        made = [
            reading(float(t), 46.0 + (t % 60 == 0), None, utilization_ratio=float(t % 40 < 20)) for t in range(1_000)
        ]
        assert last(made).faults == Faults()

    def test_an_accumulator_is_not_judged_by_it(self) -> None:
        ledger = qualified()
        made = [reading(float(t), 50.0, raw(t), utilization_ratio=float(t % 40 < 20)) for t in range(71, 2_000)]
        ledger = last(made, ledger)
        assert ledger.qualified
        assert ledger.faults == Faults(power_frozen=1)
        assert ledger.total_joules == pytest.approx(1_999 * WATTS)


class TestAnotherSensor:
    def test_no_step_spans_two(self) -> None:
        ledger = detached(qualified())
        assert not ledger.qualified
        ledger = follow(ledger, (75.0, 100.0, 7e6), (76.0, 100.0, 7e6 + 100))
        assert ledger.total_joules == pytest.approx(70 * WATTS + 100)
        assert ledger.faults == Faults()
        assert ledger.gap_seconds == 5

    def test_what_waited_for_a_step_is_credited(self) -> None:
        waiting = follow(qualified(), (71.0, WATTS, raw(70)), (72.0, WATTS, raw(70)))
        assert waiting.total_joules == pytest.approx(70 * WATTS)
        ledger = detached(waiting)
        assert ledger.total_joules == pytest.approx(72 * WATTS)
        assert ledger.covered_seconds == 72


def test_equal_and_earlier_times_are_ignored() -> None:
    ledger = qualified()
    assert advance(ledger, reading(70.0, 9_000.0, 9e9)) is ledger
    assert advance(ledger, reading(3.0, None, None)) is ledger


def test_the_state_is_one_record_of_bounded_size() -> None:
    sizes = [len(msgspec.msgpack.encode(qualified(seconds))) for seconds in (70, 700, 1_400)]
    assert sizes[-1] < 4_096
