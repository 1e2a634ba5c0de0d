"""Shares of work: what the driver's samples say of the time since the read before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Group
from exporter.providers.nvidia.shares import mean_shares
from tests.kernel import process
from tests.unit.nvidia.fake import FakeNvml, Row, Status, gpu, only, opened
from tests.unit.nvidia.test_nvidia_partitions import instance, parent

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
UTILIZATION = "nvmlDeviceGetProcessUtilization"
START = 1_700_000_000.0


class Sample(NamedTuple):
    """As pynvml makes it; the names are NVML's."""

    pid: int
    smUtil: int  # noqa: N815 -- as above
    timeStamp: int  # noqa: N815 -- as above


class Bench:
    """A GPU with processes 7 and 8, whose samples a test gives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = START
        self.asked: list[int] = []
        self.answer: Any = Status(6)
        for pid in (7, 8):
            process(root, pid)
        rows = [Row(7, 1), Row(8, 1)]
        self.gpu = gpu(**{COMPUTE: rows, UTILIZATION: self._answered})
        self.provider = opened(FakeNvml(self.gpu), root=root, wall_clock=lambda: self.now)
        self.device = only(self.provider)

    def _answered(self, since: int) -> Any:
        self.asked.append(since)
        return self.answer(since) if callable(self.answer) else self.answer

    def read(self) -> dict[int, float | None]:
        sample = self.provider.read(self.device, frozenset({Group.PROCESSES}))
        assert sample.failed == ()
        return {p.pid: p.busy_ratio for p in sample.processes or ()}

    def at(self, seconds: float) -> int:
        return int((START + seconds) * 1e6)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_share_is_that_of_the_sample_and_who_has_none_was_not_busy(bench: Bench) -> None:
    bench.answer = [Sample(7, 60, bench.at(-0.2))]
    assert bench.read() == {7: 0.6, 8: 0.0}


def test_nobody_busy_is_not_an_error(bench: Bench) -> None:
    assert bench.read() == {7: 0.0, 8: 0.0}
    bench.answer = Status(0)  # pynvml raises for a first call that succeeds with none
    assert bench.read() == {7: 0.0, 8: 0.0}


@pytest.mark.parametrize("code", [3, 4, 13, 17, 2])
def test_gpu_that_does_not_tell_has_no_shares_and_all_the_rest(bench: Bench, code: int) -> None:
    bench.answer = Status(code)
    assert bench.read() == {7: None, 8: None}


def test_driver_is_asked_for_what_is_newer_than_seen_and_never_for_all(bench: Bench) -> None:
    bench.answer = [Sample(7, 60, bench.at(-0.2)), Sample(8, 10, bench.at(-0.4))]
    bench.read()
    bench.now += 10
    bench.answer = Status(6)
    bench.read()
    bench.now += 10
    bench.read()
    assert bench.asked == [bench.at(-1), bench.at(-0.2), bench.at(-0.2)]


def test_clock_that_is_set_back_is_followed(bench: Bench) -> None:
    bench.answer = [Sample(7, 60, bench.at(0))]
    bench.read()
    bench.now -= 3600
    bench.read()
    assert bench.asked[-1] == bench.at(-3601)


def test_clock_near_zero_still_does_not_ask_for_all(bench: Bench) -> None:
    bench.now = 0.0
    bench.read()
    assert bench.asked == [1]


def test_absurd_values_dead_processes_and_old_samples_are_discarded(bench: Bench) -> None:
    bench.answer = [
        Sample(7, 40, bench.at(-0.1)),
        Sample(8, 3_000_000_000, bench.at(-0.1)),
        Sample(8, 101, bench.at(-0.1)),
        Sample(99, 100, bench.at(-0.1)),
        Sample(8, 90, bench.at(-9)),
    ]
    assert bench.read() == {7: 0.4, 8: 0.0}


def test_list_that_grew_between_its_two_calls_is_asked_again(bench: Bench) -> None:
    answers = iter([Status(7), [Sample(7, 60, bench.at(-0.2))]])
    bench.answer = lambda _: next(answers)
    assert bench.read()[7] == 0.6


def test_share_of_a_recycled_pid_is_not_known_until_the_next_read(bench: Bench) -> None:
    bench.read()
    process(bench.root, 7, b"heir", started=101)
    bench.now += 10
    bench.answer = [Sample(7, 60, bench.at(9)), Sample(8, 20, bench.at(9))]
    assert bench.read() == {7: None, 8: 0.2}
    bench.now += 10
    bench.answer = [Sample(7, 60, bench.at(19))]
    assert bench.read() == {7: 0.6, 8: 0.0}


def test_divided_gpu_is_not_asked() -> None:
    fake = parent(instance(1), **{COMPUTE: [Row(7, 1, 1, 0)], UTILIZATION: Status(999)})
    library = FakeNvml(fake)
    provider = opened(library)
    (found,) = provider.read(only(provider), frozenset({Group.PROCESSES})).processes or ()
    assert found.busy_ratio is None
    assert UTILIZATION not in library.calls


def test_lost_gpu_is_lost_while_its_shares_are_read(bench: Bench) -> None:
    bench.answer = Status(15)
    assert bench.provider.read(bench.device, frozenset({Group.PROCESSES})).lost


def test_periods_without_a_sample_count() -> None:
    samples = [Sample(7, 50, n) for n in range(10)] + [Sample(8, 50, 3)]
    assert mean_shares({7: None, 8: None, 9: None}, samples) == {7: 0.5, 8: 0.05, 9: 0.0}


samples = st.lists(st.builds(Sample, st.integers(1, 4), st.integers(0, 100), st.integers(1, 99)), max_size=20)


@given(samples, st.randoms())
def test_shares_are_ratios_whatever_the_order(found: list[Sample], random: Any) -> None:
    pids = dict.fromkeys(range(1, 5))
    shares = mean_shares(pids, found)
    shuffled = found[:]
    shuffle: Callable[[list[Sample]], None] = random.shuffle
    shuffle(shuffled)
    assert shares == mean_shares(pids, shuffled)
    assert set(shares) == set(pids)
    assert all(0 <= share <= 1 for share in shares.values())
    assert {pid for pid, share in shares.items() if share} == {s.pid for s in found if s.smUtil}
