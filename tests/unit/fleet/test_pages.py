"""Whatever a fleet is told, a page of blocks in memory is the one that is made from scratch: no change goes unseen."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Format, Renderer
from exporter.model import ErrorEvent, Group, LinkSample, PartitionSample, ProcessSample, WebCounts
from tests.unit.fleet.test_fallback_stories import PROVIDERS, STEPS, Story


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


PARTS = (PartitionSample(partition="gi1"), PartitionSample(partition="gi1", memory_used_bytes=3.0))
LINKS = st.builds(
    LinkSample,
    kind=some("nvlink", "xgmi"),
    link=some("0", "1"),
    up=some(None, True, False),
    receive_bytes=some(None, 0.0, 5.0, 9.0),
    errors=some({}, {"crc": 1.0}, {"crc": 3.0}),
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "links": st.lists(LINKS, max_size=3).map(tuple),
        "partitions": some(None, (), *((part,) for part in PARTS)),
        "throttled": some({"idle": True}, {"idle": True}, {"idle": False}, {}),
        "throttle_seconds": some({}, {"idle": 4.0}, {"idle": 9.0}),
        "pcie_replays": some(None, 0.0, 1.0),
        "error_event_kinds": st.just(("xid",)),
        "error_events": some((), (ErrorEvent(kind="xid", code="79"),), (ErrorEvent(kind="xid", code="13", at=5.0),)),
        "memory_remap_failed": some(None, True, False),
        "recovery_action": some(None, "none", "gpu_reset"),
    },
)
PROCESSES = st.builds(
    ProcessSample, pid=st.integers(1, 3), name=some(None, "a", "b"), memory_used_bytes=some(None, 1.0, 2.0)
)
MORE_STEPS = st.one_of(
    STEPS.filter(lambda step: step[0] != "run"),
    *[st.tuples(st.just("state"), PROVIDERS, STATES)] * 3,  # counters need several
    st.tuples(st.just("processes"), PROVIDERS, st.lists(PROCESSES, max_size=3).map(tuple), some({}, {"holding": 2})),
    st.tuples(st.just("serve"), st.integers(0, 2)),
    st.tuples(st.just("configure"), st.booleans()),
    st.tuples(st.just("fail"), PROVIDERS),
)
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"each_link": True, "created": True})


class Pages(Story):
    """After some of its steps pages are asked for."""

    def __init__(self, asked: list[bool]) -> None:
        self.kept = [Renderer(**options) for options in OPTIONS]
        self.asked = asked
        super().__init__()

    def live(self, step: tuple[object, ...]) -> None:
        host = self.host
        match step:
            case ("state", provider, readings):
                host.wait(0.5)
                host.read(self.names[provider], Group.STATE, provider=provider, **readings)
            case ("processes", provider, processes, counts):
                host.wait(0.5)
                device = self.names[provider]
                host.read(device, Group.PROCESSES, provider=provider, processes=processes, process_counts=counts)
            case ("serve", count):
                host.fleet.served(WebCounts(refused=count))
            case ("configure", well):
                host.fleet.configured(well=bool(well), wall=5.0 if well else None)
            case ("fail", provider):
                host.read(self.names[provider], Group.LOAD, provider=provider, failed=("utilization_ratio",))
            case ("restart",):
                self.kept = [Renderer(**options) for options in OPTIONS]
                super().live(step)
                return
            case _:
                super().live(step)
                return
        self._hold()

    def _hold(self) -> None:
        super()._hold()
        if self.asked and not self.asked.pop():
            return
        world = self.host.fleet.world(self.host.now)
        for kept, options in zip(self.kept, OPTIONS, strict=True):
            fresh = Renderer(**options)
            for form in (Format.TEXT_0_0_4, Format.OPENMETRICS_1_0_0):
                assert kept.page(world, form) == fresh.page(world, form)


@settings(deadline=None, max_examples=60)
@given(st.lists(MORE_STEPS, max_size=12), st.lists(st.booleans(), max_size=20))
def test_a_page_from_memory_is_the_page_from_scratch_whatever_happens(
    steps: list[tuple[object, ...]], asked: list[bool]
) -> None:
    story = Pages(asked)
    for step in steps:
        story.live(step)
