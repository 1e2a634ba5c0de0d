from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.metrics import FATAL_EVENTS
from exporter.model import ErrorEvent, Group
from tests.unit.amd.vendor import ADDRESS, STARTED, FakeAmdsmi, Handle, error, gpu, provider

ONLY = frozenset({Group.STATE})


class Ring:
    """The driver's ring through the function of the package: at most 20 records in a call, from a cursor on."""

    def __init__(self) -> None:
        self.records: list[tuple[int, float]] = []
        """Number of the record and when."""
        self.calls = 0

    def add(self, *numbers: int, at: float = STARTED) -> None:
        self.records += [(number, at) for number in numbers]

    def __call__(self, severities: int, room: int, cursor: int) -> Any:
        self.calls += 1
        assert severities == 7
        assert room <= 1 << 20
        if not self.records:
            raise error(14)
        page = self.records[cursor : cursor + 20]
        entries = {
            place: {
                "error_severity": ("non_fatal_uncorrected", "fatal", "non_fatal_corrected", "num")[number % 4],
                "timestamp": f"{datetime.fromtimestamp(at, UTC):%Y/%m/%d %H:%M:%S}",
            }
            for place, (number, at) in enumerate(page)
        }
        blobs = [{"bytes": [67, -1, number >> 7, number & 0x7F, int(at) % 127], "size": 5} for number, at in page]
        more = cursor + len(page) < len(self.records)
        return entries, max(cursor, 0) + len(page), blobs, 39 if more else 0


def afids(raw: bytes) -> tuple[list[int], int]:
    assert raw[:2] == b"C\xff"
    return [(raw[2] << 7) + raw[3]], 1


def listening(ring: Callable[..., Any], *, wall: float = STARTED + 60, decoder: Any = afids) -> Callable[[], Any]:
    handle = gpu(gpu_cper_entries=ring, power_info={"average_socket_power": 9})
    opened = provider(module_with(handle, decoder), wall=clock_of(STARTED, wall))
    (device,) = opened.devices()
    return lambda: opened.read(device, ONLY)


def module_with(handle: Handle, decoder: Any) -> FakeAmdsmi:
    module = FakeAmdsmi(handle)
    module.without_handle["amdsmi_get_afids_from_cper"] = decoder
    return module


def clock_of(first: float, later: float) -> Callable[[], float]:
    times = iter([first])
    return lambda: next(times, later)


def codes(sample: Any, kind: str = "afid") -> list[str]:
    return [event.code for event in sample.error_events if event.kind == kind]


def test_a_record_is_told_once_with_its_severity_its_numbers_and_its_time() -> None:
    ring = Ring()
    look = listening(ring)
    assert look().error_events == ()
    ring.add(17, at=STARTED + 5)
    assert look().error_events == (
        ErrorEvent(kind="ras", code="fatal", at=STARTED + 5),
        ErrorEvent(kind="afid", code="17", at=STARTED + 5),
    )
    ring.add(18)
    assert [codes(look()) for _ in range(2)] == [["18"], []]


def test_a_fatal_record_is_a_series_before_there_is_one() -> None:
    ring = Ring()
    ring.add(1, at=STARTED - 5)
    sample = listening(ring)()
    assert sample.error_event_kinds == ("afid", "ras")
    assert FATAL_EVENTS["ras"] == ("fatal",)


def test_what_was_recorded_before_the_start_is_not_told() -> None:
    ring = Ring()
    ring.add(*range(1, 46), at=STARTED - 3600)  # three calls full
    ring.add(46, at=STARTED + 1)
    ring.add(47, at=STARTED + 8 * 3600)  # by a clock that was wrong
    look = listening(ring)
    assert codes(look()) == ["46"]
    ring.add(48, at=STARTED - 7200)  # the clock was set back: what is new is new
    assert codes(look()) == ["48"]


def test_the_ring_is_read_on_from_where_it_was_read_to() -> None:
    ring = Ring()
    ring.add(*range(1, 101), at=STARTED - 5)
    look = listening(ring)
    look()
    before = ring.calls
    look()
    assert ring.calls == before + 1
    ring.add(*range(101, 131))
    assert codes(look()) == [str(number) for number in range(101, 131)]


def test_a_ring_that_was_overwritten_is_read_from_its_beginning() -> None:
    ring = Ring()
    ring.add(*range(1, 31), at=STARTED - 5)
    look = listening(ring)
    look()
    ring.add(31)
    del ring.records[:20]
    assert codes(look()) == ["31"]
    del ring.records[:]
    assert look().error_events == ()
    ring.add(32)
    assert codes(look()) == ["32"]


@pytest.mark.parametrize(("code", "failed"), [(2, ()), (14, ()), (10, ("error_events",)), (16, ("error_events",))])
def test_who_may_not_read_them_listens_to_nothing(code: int, failed: tuple[str, ...]) -> None:
    def refuse(*_: Any) -> Any:
        raise error(code)

    sample = listening(refuse)()
    assert (sample.error_events, sample.error_event_kinds, sample.failed) == ((), (), failed)


def test_what_is_refused_for_once_is_told_by_the_next_read() -> None:
    ring = Ring()
    fails_from = 1000

    def answer(severities: int, room: int, cursor: int) -> Any:
        if cursor >= fails_from:
            raise error(30)
        return ring(severities, room, cursor)

    look = listening(answer)
    ring.add(1, at=STARTED - 5)
    look()
    ring.add(*range(2, 30))
    fails_from = 10
    assert look().failed == ("error_events",)
    fails_from = 1000
    assert codes(look()) == [str(number) for number in range(2, 30)]


@pytest.mark.parametrize("answer", [None, (), ({}, "x", [], 0), ("N/A", 0, "N/A", 0), ({0: "x"}, 1, ["y"], 0)])
def test_an_answer_of_another_shape_is_no_event(answer: Any) -> None:
    look = listening(lambda *_: answer)
    assert [codes(look()) for _ in range(2)] == [[], []]


@pytest.mark.parametrize("numbers", [([0], 1), ([2**64 - 1], 1), ("N/A", 0), None, error(43), ValueError("bytes")])
def test_a_record_without_a_known_number_is_told_by_its_severity(numbers: Any) -> None:
    ring = Ring()
    look = listening(ring, decoder=numbers)
    look()
    ring.add(2, 3)
    sample = look()
    assert (codes(sample, "ras"), codes(sample)) == (["non_fatal_corrected", "unknown"], [])


def test_what_was_told_is_not_told_again_by_a_card_that_was_away() -> None:
    ring = Ring()
    module = module_with(gpu(gpu_cper_entries=ring, power_info={"average_socket_power": 9}), afids)
    opened = provider(module, wall=lambda: STARTED)
    (device,) = opened.devices()
    opened.read(device, ONLY)
    ring.add(1)
    assert codes(opened.read(device, ONLY)) == ["1"]
    here, module.handles = module.handles, []
    assert opened.read(device, ONLY).lost
    ring.add(2)
    module.handles = here
    seen = [codes(opened.read(device, ONLY)) for _ in range(7)]
    assert [code for found in seen for code in found] == ["2"]


def test_a_card_that_is_asleep_after_all_tells_what_is_new_when_it_wakes(tmp_path: Path) -> None:
    power = tmp_path / f"sys/bus/pci/devices/{ADDRESS}/power"
    power.mkdir(parents=True)
    (power / "runtime_status").write_text("active\n")

    def falls_asleep(*_: object) -> None:
        (power / "runtime_status").write_text("suspended\n")
        raise error(10)

    ring = Ring()
    handle = gpu(gpu_cper_entries=ring)
    opened = provider(module_with(handle, afids), tmp_path, wall=lambda: STARTED)
    (device,) = opened.devices()
    opened.read(device, ONLY)
    ring.add(1)
    handle.answers["amdsmi_get_gpu_fan_speed"] = falls_asleep
    assert opened.read(device, ONLY).asleep
    (power / "runtime_status").write_text("active\n")
    handle.answers["amdsmi_get_gpu_fan_speed"] = 255
    assert codes(opened.read(device, ONLY)) == ["1"]


moves = st.lists(st.one_of(st.integers(0, 45), st.just("lose"), st.just("fail")), max_size=12)


@given(moves)
def test_each_record_that_is_still_there_is_told_exactly_once(history: list[Any]) -> None:
    ring = Ring()
    failing = False

    def answer(*rest: int) -> Any:
        if failing:
            raise error(30)
        return ring(*rest)

    ring.add(1, at=STARTED - 5)
    look = listening(answer)
    look()
    told: list[str] = []
    newest = 1
    for move in history:
        if move == "lose":  # those that were told
            del ring.records[: len(ring.records) // 2]
            continue
        failing = move == "fail"
        if not failing:
            ring.add(*range(newest + 1, newest + 1 + move))
            newest += move
        told += codes(look())
    assert told == [str(number) for number in range(2, newest + 1)]
