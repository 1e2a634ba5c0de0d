"""Any world gives a page that every reader takes, and the same one that prometheus-client would have written."""

import gzip
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import generate_latest as their_text
from prometheus_client.openmetrics.exposition import generate_latest as their_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.exposition import Format, Renderer
from exporter.exposition.renderer import FRONT
from exporter.exposition.subjects import TABLES
from exporter.metrics import PROCESS_LABELS, Block, Kind, MetricSpec
from exporter.model import DeviceSnapshot, Snapshot, World
from exporter.text import cleaned
from tests.unit.exposition.worlds import device, struct, worlds
from tests.unit.exposition.worlds import world as world_of

READERS = {
    Format.TEXT_0_0_4: parse_text,
    Format.TEXT_1_0_0: parse_text,
    Format.OPENMETRICS_1_0_0: parse_openmetrics,
}

Series = tuple[str, tuple[tuple[str, str], ...]]


def samples(page: bytes, format_: Format) -> list[tuple[Series, float]]:
    return [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in READERS[format_](page.decode())
        for sample in family.samples
    ]


@given(worlds)
@settings(deadline=None)
def test_any_world_is_a_page_without_duplicates_in_every_format(world: World) -> None:
    renderer = Renderer()
    found = {format_: samples(renderer.page(world, format_), format_) for format_ in Format}
    shown = found[Format.TEXT_0_0_4]
    assert len({series for series, _ in shown}) == len(shown)
    assert all(math.isfinite(value) for _, value in shown)
    assert all(value >= 0 for (name, _), value in shown if name.endswith("_total"))
    assert all(other == shown for other in found.values())


@given(worlds)
@settings(deadline=None)
def test_gzip_and_plain_agree_for_any_world(world: World) -> None:
    renderer = Renderer()
    for format_ in Format:
        assert gzip.decompress(renderer.page(world, format_, gzip=True)) == renderer.page(world, format_)


@given(worlds)
@settings(deadline=None)
def test_a_page_from_memory_is_the_page_from_scratch(world: World) -> None:
    kept = Renderer()
    kept.page(world, Format.TEXT_0_0_4)
    assert kept.page(world, Format.TEXT_0_0_4) == Renderer().page(world, Format.TEXT_0_0_4)


class Asked(NamedTuple):
    """One page that is asked for, and how much of it was made before."""

    shown: int
    """Which of the worlds."""
    form: Format
    blocks: frozenset[Block] | None
    gzip: bool
    prepared: bool | None
    """Whether its energy was, too; None: nothing was."""


ASKED = st.builds(
    Asked,
    shown=st.integers(0, 3),
    form=st.sampled_from(Format),
    blocks=st.none() | st.frozensets(st.sampled_from(Block)),
    gzip=st.booleans(),
    prepared=st.sampled_from([None, False, True]),
)
OPTIONS = st.fixed_dictionaries(
    {
        "disable": st.sampled_from([(), ("gpu_power_*",)]),
        "created": st.booleans(),
        "process_labels": st.sampled_from([PROCESS_LABELS, ("pid", "user")]),
        "each_link": st.booleans(),
    }
)


@st.composite
def courses(draw: st.DrawFn) -> list[World]:
    """Draw worlds of one host: devices come, go, and change all or some of what they read."""
    first = draw(worlds)
    devices = draw(st.lists(struct(DeviceSnapshot), min_size=1, max_size=3))
    course = [first]
    for _ in range(3):
        here = tuple(
            msgspec.structs.replace(one, sample=draw(st.sampled_from(devices)).sample) if draw(st.booleans()) else one
            for one in draw(st.lists(st.sampled_from(devices), max_size=3))
        )
        snapshot = Snapshot(provider="amd", up=True, wanted=True, reason="", devices=here)
        course.append(msgspec.structs.replace(first, snapshots=(snapshot,)))
    return [
        msgspec.structs.replace(one, versions=dict.fromkeys(Block, number)) if draw(st.booleans()) else one
        for number, one in enumerate(course)
    ]


@given(courses(), st.lists(ASKED, min_size=2, max_size=6), OPTIONS)
@settings(deadline=None, max_examples=60)
def test_what_was_shown_before_makes_no_difference(
    course: list[World], pages: list[Asked], options: dict[str, Any]
) -> None:
    kept = Renderer(**options)
    for asked in pages:
        world = course[asked.shown]
        if asked.prepared is not None:
            kept.prepare(world, asked.form, asked.blocks, gzip=asked.gzip, energy=asked.prepared)
        page = kept.page(world, asked.form, asked.blocks, gzip=asked.gzip)
        fresh = Renderer(**options)
        plain = gzip.decompress(page) if asked.gzip else page
        assert split(plain) == split(fresh.page(world, asked.form, asked.blocks))
        if asked.blocks is None:
            assert kept.dropped == fresh.dropped


class Theirs:
    """The same world through prometheus-client's families."""

    def __init__(self, world: World) -> None:
        self.world = world

    def collect(self) -> Iterator[Metric]:
        for block in (*FRONT, Block.ENERGY):
            for table in TABLES:
                for spec in table.specs:
                    if spec.block is block:
                        family = self._family(spec, table.labels, table.subjects(self.world))
                        if family.samples:
                            yield family

    @staticmethod
    def _family(spec: MetricSpec[Any], base_labels: tuple[str, ...], subjects: Any) -> Any:
        names = (*base_labels, *spec.labels)
        family: Any
        if spec.kind is Kind.INFO:
            family = InfoMetricFamily(spec.name.removesuffix("_info"), spec.help)
        else:
            kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(spec.name, spec.help, labels=names, unit=spec.unit)
        seen = set()
        for base, subject in subjects:
            reading = spec.read(subject)
            for key, value in sorted(reading.items()) if isinstance(reading, Mapping) else [((), reading)]:
                own = (key,) if isinstance(key, str) else key
                labels = [cleaned(label) for label in (*base, *own)]
                if tuple(labels) in seen or not usable(value, spec.kind):
                    continue
                seen.add(tuple(labels))
                if spec.kind is Kind.INFO:
                    family.add_metric((), dict(zip(names, labels, strict=True)))
                else:
                    family.add_metric(labels, value)
        return family


def usable(value: object, kind: Kind) -> bool:
    if not isinstance(value, int | float) or abs(value) > 1.7976931348623157e308:
        return False
    return not math.isnan(value) and (value >= 0 or kind is not Kind.COUNTER)


def split(page: bytes) -> list[tuple[str, float | None]]:
    """Lines, with the value of a sample as a number: prometheus-client writes 1e+06 as Go does."""
    lines: list[tuple[str, float | None]] = []
    for line in page.decode().split("\n"):
        text, _, value = line.rpartition(" ")
        lines.append((line, None) if line.startswith("#") or not line else (text, float(value)))
    return lines


@given(worlds)
@settings(deadline=None)
def test_the_page_is_the_one_that_prometheus_client_writes(world: World) -> None:
    theirs: Any = Theirs(world)
    assert split(Renderer().page(world, Format.TEXT_0_0_4)) == split(their_text(theirs))
    assert split(Renderer().page(world, Format.OPENMETRICS_1_0_0)) == split(their_openmetrics(theirs))


@given(st.floats(min_value=-999_999, max_value=999_999))
def test_below_a_million_it_is_the_same_to_the_byte(number: float) -> None:
    shown = world_of(device(power_watts=number, temperature_celsius={"gpu": number}))
    theirs: Any = Theirs(shown)
    assert Renderer().page(shown, Format.TEXT_0_0_4) == their_text(theirs)
    assert Renderer().page(shown, Format.OPENMETRICS_1_0_0) == their_openmetrics(theirs)
