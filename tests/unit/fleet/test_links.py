"""What went over all links of a GPU together: a sum whose increase is that of its links, whatever becomes of them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet.links import MOST_LINKS, LinkCounts
from exporter.metrics import Block
from exporter.model import GpuState, Group, LinkSample, LinkTotal
from tests.unit.fleet.hosts import Host, card
from tests.unit.fleet.pair import CARD, Pair


def nvlink(number: int, received: float | None, kind: str = "nvlink", **more: object) -> LinkSample:
    return LinkSample(kind=kind, link=str(number), receive_bytes=received, **more)


def counted(*readings: Sequence[LinkSample]) -> tuple[LinkTotal, ...]:
    counts = LinkCounts()
    for links in readings:
        counts.observe("nvidia", tuple(links))
    return counts.totals


def received(*readings: Sequence[LinkSample]) -> float | None:
    (total,) = counted(*readings)
    return total.receive_bytes


def increase(values: Sequence[float]) -> float:
    """What Prometheus takes for the increase of a counter with these samples."""
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def test_all_that_a_link_counts_is_added_up_by_kind() -> None:
    before = [
        nvlink(0, 5.0, transmit_bytes=7.0, errors={"crc": 1.0, "replay": 0.0}),
        nvlink(1, 0.0, transmit_bytes=0.0, errors={"crc": 0.0}),
        nvlink(0, 1.0, "xgmi"),
    ]
    after = [
        nvlink(0, 9.0, transmit_bytes=8.0, errors={"crc": 3.0, "replay": 0.0}),
        nvlink(1, 10.0, transmit_bytes=20.0, errors={"crc": 5.0}),
        nvlink(0, 1.5, "xgmi"),
    ]
    assert counted(before, after) == (
        LinkTotal(kind="nvlink", receive_bytes=14.0, transmit_bytes=21.0, errors={"crc": 7.0, "replay": 0.0}),
        LinkTotal(kind="xgmi", receive_bytes=0.5),
    )


def test_it_begins_at_zero_whatever_the_driver_has_counted() -> None:
    assert received([nvlink(0, 2.0**60)]) == 0.0


def test_a_link_that_is_first_seen_later_adds_what_it_counts_from_there_on() -> None:
    assert received([nvlink(0, 10.0)], [nvlink(0, 11.0), nvlink(1, 1e15)], [nvlink(0, 12.0), nvlink(1, 1e15 + 3)]) == 5


def test_a_link_that_is_away_keeps_its_part_and_goes_on_from_it() -> None:
    two = [nvlink(0, 10.0), nvlink(1, 10.0)]
    assert received(two, [nvlink(0, 20.0), nvlink(1, 20.0)], [nvlink(0, 25.0)]) == 25
    assert received(two, [nvlink(0, 20.0), nvlink(1, None)], [nvlink(0, 25.0), nvlink(1, 50.0)]) == 55


def test_a_link_that_begins_anew_adds_what_it_has_and_leaves_the_others_alone() -> None:
    assert received([nvlink(0, 1e9), nvlink(1, 1e9)], [nvlink(0, 1e9 + 5), nvlink(1, 7.0)]) == 12


def test_a_link_that_is_told_twice_counts_as_it_is_shown_the_first_time() -> None:
    assert received(*([nvlink(0, 1e9 + step), nvlink(0, 5.0 + step)] for step in range(4))) == 3


def test_what_is_no_count_changes_nothing() -> None:
    odd = [nvlink(0, count, errors={"crc": count, "made up": 5.0}) for count in (float("nan"), float("inf"), -1.0)]
    (total,) = counted([nvlink(0, 1.0, errors={"crc": 1.0})], *([each] for each in odd), [nvlink(0, 3.0)])
    assert total == LinkTotal(kind="nvlink", receive_bytes=2.0, errors={"crc": 0.0})


def test_links_that_are_made_up_are_not_kept_without_end() -> None:
    made_up = [[nvlink(number, 0.0), nvlink(number, 1.0, f"kind{number}")] for number in range(2 * MOST_LINKS)]
    again = [nvlink(number, 1.0) for number in range(2 * MOST_LINKS)]
    (total,) = counted(*made_up, again)
    assert total == LinkTotal(kind="nvlink", receive_bytes=float(MOST_LINKS))


class Step(NamedTuple):
    """What one link does until it is read, and whether that is told."""

    moved: int
    begins_anew: bool
    is_told: bool


def steps(*, begin_anew: bool) -> st.SearchStrategy[list[list[Step]]]:
    step = st.builds(
        Step,
        moved=st.integers(0, 10**12),
        begins_anew=st.booleans() if begin_anew else st.just(False),
        is_told=st.booleans(),
    )
    return st.integers(1, 4).flatmap(
        lambda links: st.lists(st.lists(step, min_size=links, max_size=links), min_size=1, max_size=12)
    )


def told(course: list[Step]) -> Iterator[tuple[int, float | None]]:
    """Yield for each read what the link has moved since the driver was loaded, and its counter if it is told."""
    moved = counter = 0
    for step in course:
        moved += step.moved
        counter = step.moved if step.begins_anew else counter + step.moved
        yield moved, float(counter) if step.is_told else None


def totals(courses: list[list[Step]]) -> Iterator[float]:
    """Yield what the page shows after each read; before the first there is no series."""
    counts = LinkCounts()
    for counters in zip(*([counter for _, counter in told(course)] for course in courses), strict=True):
        counts.observe("nvidia", tuple(nvlink(*each) for each in enumerate(counters)))
        yield from (total.receive_bytes for total in counts.totals if total.receive_bytes is not None)


@given(steps(begin_anew=True))
def test_the_increase_of_the_sum_is_that_of_the_links_whatever_is_missing_or_begins_anew(
    reads: list[list[Step]],
) -> None:
    courses = [list(course) for course in zip(*reads, strict=True)]
    shown = list(totals(courses))
    of_each = [[counter for _, counter in told(course) if counter is not None] for course in courses]
    assert increase(shown) == sum(map(increase, of_each))
    assert shown == sorted(shown)
    moved = sum(sum(step.moved for step in course) for course in courses)
    assert increase(shown) <= moved


@given(steps(begin_anew=False))
def test_gaps_lose_nothing(reads: list[list[Step]]) -> None:
    courses = [list(course) for course in zip(*reads, strict=True)]
    seen = [[moved for moved, counter in told(course) if counter is not None] for course in courses]
    assert increase(list(totals(courses))) == sum(moved[-1] - moved[0] for moved in seen if moved)


def state(host: Host, *links: LinkSample, provider: str = "nvidia") -> None:
    host.read(card(1), Group.STATE, provider=provider, links=links)


def shown(host: Host) -> list[float | None]:
    return [total.receive_bytes for total in host.cards["nvidia0"].link_totals]


def test_the_sum_stays_while_the_gpu_does_not_answer_and_goes_on_after_a_reset() -> None:
    host = Host(card(1))
    state(host, nvlink(0, 100.0))
    state(host)
    host.wait(5)
    state(host, nvlink(0, 130.0))
    assert shown(host) == [30]
    host.wait(60)
    assert (host.cards["nvidia0"].state, host.cards["nvidia0"].sample.links) == (GpuState.STALE, None)
    assert shown(host) == [30]
    host.read(card(1), lost=True)
    host.down()
    assert shown(host) == [30]
    host.down(up=True)
    host.wait(5)
    state(host, nvlink(0, 8.0))
    assert shown(host) == [38]


def test_bytes_that_move_change_the_block_of_the_state_and_the_same_again_does_not() -> None:
    host = Host(card(1))
    state(host, nvlink(0, 100.0))
    before = host.versions
    host.wait(5)
    state(host, nvlink(0, 130.0))
    assert Block.STATE in host.bumped(before)
    before = host.versions
    host.wait(5)
    state(host, nvlink(0, 130.0))
    assert Block.STATE not in host.bumped(before)


def test_no_step_spans_the_counters_of_two_providers() -> None:
    host = Pair(CARD)
    readings = {"amd": 1_000.0, "drm": 5_000_000.0}

    def read(provider: str) -> None:
        host.wait(5)
        readings[provider] += 10
        links = (nvlink(0, readings[provider], "xgmi"),)
        host.read(CARD, Group.STATE, provider=provider, links=links)

    for _ in range(3):
        read("amd")
        read("drm")
    assert [total.receive_bytes for total in host.card.link_totals] == [20]
    host.down("amd")
    for _ in range(6):
        read("drm")
    assert [total.receive_bytes for total in host.card.link_totals] == [70]
