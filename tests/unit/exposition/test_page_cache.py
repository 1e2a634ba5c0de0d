"""What is rendered again, and what is served from memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Format, Renderer
from exporter.exposition.formats import Dialect
from exporter.metrics import Block
from exporter.model import ProcessSeries, World
from tests.unit.exposition.worlds import device, world

FIRST: dict[str, int] = dict.fromkeys(Block, 1)


def parts(renderer: Renderer, of: World) -> dict[tuple[Block, Dialect, bool], bytes]:
    """Bring every block into memory in every form, and return what lies there."""
    for format_ in Format:
        renderer.page(of, format_)
        renderer.page(of, format_, gzip=True)
    forms: dict[tuple[Block, Dialect, bool], bytes] = {}
    for block, rendered in renderer._rendered.items():
        for dialect in Dialect:
            forms[block, dialect, False] = rendered.plain(dialect)
            forms[block, dialect, True] = rendered.deflated(dialect)
    return forms


def test_without_a_change_the_same_bytes_are_served() -> None:
    renderer = Renderer()
    before = parts(renderer, world(device(utilization_ratio=0.5), versions=FIRST))
    after = parts(renderer, world(device(utilization_ratio=0.5), versions=FIRST))
    assert all(after[key] is before[key] for key in before)
    assert before[Block.LOAD, Dialect.PROMETHEUS, False]


@given(st.sets(st.sampled_from(Block)))
def test_a_changed_version_renders_that_block_and_no_other(changed: set[Block]) -> None:
    renderer = Renderer()
    shown = device(utilization_ratio=0.5, temperature_celsius={"gpu": 1.0}, process_counts={"holding": 1})
    before = parts(renderer, world(shown, versions=FIRST))
    after = parts(renderer, world(shown, versions={**FIRST, **dict.fromkeys(changed, 2)}))
    empty = {key for key, value in before.items() if not value}
    same = {key[0] for key in before if after[key] is before[key] and key not in empty}
    assert same == {key[0] for key in before if key not in empty} - changed
    assert after == before


@pytest.mark.parametrize("version", [0, 2, -1])
def test_any_other_version_counts_as_a_change(version: int) -> None:
    renderer = Renderer()
    renderer.page(world(device(power_watts=1.0), versions=FIRST), Format.TEXT_0_0_4)
    changed = world(device(power_watts=2.0), versions={**FIRST, Block.ENERGY: version})
    assert b'gpu_power_watts{gpu="nvidia0",uuid="GPU-0"} 2.0\n' in renderer.page(changed, Format.TEXT_0_0_4)


def test_the_page_in_memory_is_that_of_the_version_whatever_the_world_holds() -> None:
    renderer = Renderer()
    first = renderer.page(world(device(power_watts=1.0), versions=FIRST), Format.TEXT_0_0_4)
    assert renderer.page(world(device(power_watts=2.0), versions=FIRST), Format.TEXT_0_0_4) == first


def test_a_block_without_a_version_is_rendered_each_time() -> None:
    renderer = Renderer()
    versions = {block: 1 for block in Block if block is not Block.ENERGY}
    renderer.page(world(device(power_watts=1.0), versions=versions), Format.TEXT_0_0_4)
    page = renderer.page(world(device(power_watts=2.0), versions=versions), Format.TEXT_0_0_4)
    assert b'gpu_power_watts{gpu="nvidia0",uuid="GPU-0"} 2.0\n' in page


def test_all_formats_are_made_of_one_reading_of_the_world() -> None:
    renderer = Renderer()
    text = renderer.page(world(device(power_watts=1.0), versions=FIRST), Format.TEXT_0_0_4)
    openmetrics = renderer.page(world(device(power_watts=2.0), versions=FIRST), Format.OPENMETRICS_1_0_0)

    def samples(page: bytes) -> list[bytes]:
        return [line for line in page.splitlines() if not line.startswith(b"#")]

    assert samples(openmetrics) == samples(text)


@pytest.mark.parametrize(
    ("before", "after"), [(1.0, True), (True, 1.0), (0, False), (1, 1.0), (2**53 + 1, float(2**53)), (1.0, "1.0")]
)
def test_readings_that_python_holds_equal_are_shown_alike(before: object, after: object) -> None:
    kept, fresh = Renderer(), Renderer()
    kept.page(world(device(power_watts=before, temperature_celsius={"gpu": before})), Format.TEXT_0_0_4)
    shown = world(device(power_watts=after, temperature_celsius={"gpu": after}))
    assert kept.page(shown, Format.TEXT_0_0_4) == fresh.page(shown, Format.TEXT_0_0_4)
    assert kept.dropped == fresh.dropped


class Scarce(int):
    """Cannot become a float the first time, as if there were no memory for it."""

    refused = False

    def __float__(self) -> float:
        if not self.refused:
            self.refused = True
            raise MemoryError
        return float(int(self))


def test_after_a_page_that_could_not_be_made_nothing_from_before_it_is_shown() -> None:
    renderer = Renderer()
    renderer.page(world(device(power_watts=1.0)), Format.TEXT_0_0_4)
    shown = world(device(power_watts=Scarce(2)))
    with pytest.raises(MemoryError):
        renderer.page(shown, Format.TEXT_0_0_4)
    assert b'gpu_power_watts{gpu="nvidia0",uuid="GPU-0"} 2.0\n' in renderer.page(shown, Format.TEXT_0_0_4)


def test_memory_does_not_grow_with_processes_that_come_and_go() -> None:
    renderer = Renderer()
    sizes: list[int] = []
    for generation in range(50):
        pids = range(generation * 100, generation * 100 + 100)
        shown = device(series=tuple(ProcessSeries(pid=str(pid), memory_used_bytes=1.0) for pid in pids))
        renderer.page(world(shown), Format.TEXT_0_0_4)
        remembered: Any = [f._texts for _, members in renderer._families[Block.PROCESSES] for f in members]
        sizes.append(sum(map(len, remembered)))
    assert max(sizes) < 400
