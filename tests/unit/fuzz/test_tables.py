"""Whatever amdgpu's gpu_metrics file holds, it is readings within their ranges, or it is refused for a reason."""

import ctypes
import math
import struct
from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.metrics import DOMAINS, ENGINES, REASONS, SENSORS
from exporter.providers.drm.gpu_metrics import Metrics, RefusedError, TableReader, Throttling, decode
from exporter.providers.sanitise import CELSIUS, HERTZ, JOULES, RATIO, WATTS
from tests.unit.drm.tables import ATTRIBUTES, STRUCTURES, TYPES, attribute, described, table

DECODED = [version for version in STRUCTURES if version != (2, 0)]
VERSIONS = st.sampled_from(DECODED)
unhurried = settings(deadline=None)  # a busy machine is no failure
EXTREMES = st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF])


def judged(raw: bytes) -> Metrics | None:
    """Decode, and judge what came out; None: refused."""
    try:
        metrics = decode(raw)
    except RefusedError:
        return None
    within(WATTS, [metrics.power_watts])
    within(JOULES, [metrics.energy_counter_joules])
    within(RATIO, [metrics.utilization_ratio, metrics.memory_controller_utilization_ratio])
    within(RATIO, [*metrics.engine_utilization_ratio.values(), *metrics.partition_utilization_ratio.values()])
    within(CELSIUS, metrics.temperature_celsius.values())
    within(HERTZ, metrics.clock_hertz.values())
    assert set(metrics.temperature_celsius) <= set(SENSORS)
    assert set(metrics.clock_hertz) <= set(DOMAINS)
    assert set(metrics.engine_utilization_ratio) <= set(ENGINES)
    assert set(metrics.throttled) | set(metrics.residencies) <= set(REASONS)
    assert metrics.partition_count is None or 1 <= metrics.partition_count <= 8
    assert metrics.power_kind is None or metrics.power_watts is not None
    if metrics.energy_counter_joules is not None:
        assert metrics.energy_counter_joules > 0
        assert metrics.table.startswith("v1_")
    return metrics


def within(bounds: tuple[float, float], values: Iterable[float | None]) -> None:
    for value in values:
        assert value is None or (math.isfinite(value) and bounds[0] <= value <= bounds[1])


@st.composite
def describing(draw: st.DrawFn) -> bytes:
    """A table that describes itself, of attributes that are known and others, with any values."""
    number, unit, kind = st.integers(0, 60), st.integers(0, 11), st.sampled_from(TYPES)
    told = st.sampled_from([(row[0], row[1], row[2]) for row in ATTRIBUTES.values()]) | st.tuples(number, unit, kind)
    rows = draw(st.lists(st.tuples(told, st.binary(max_size=64)), max_size=12))
    attributes = []
    for (one, of, width), raw in rows:
        values = [value % 2**7 if draw(st.booleans()) else value for value in raw]
        attributes.append(attribute(one, of, width, *values))
    return described(*attributes, count=draw(st.none() | st.integers(-1, 99)))


@st.composite
def filled(draw: st.DrawFn) -> bytes:
    """A table of a version that is known, with any content."""
    form, content = draw(VERSIONS)
    size = ctypes.sizeof(STRUCTURES[form, content])
    body = draw(st.binary(min_size=size - 4, max_size=size - 4) | EXTREMES.map(lambda byte: bytes([byte]) * (size - 4)))
    return struct.pack("<HBB", size, form, content) + body


@unhurried
@given(filled())
def test_any_content_of_a_known_version_is_readings(raw: bytes) -> None:
    metrics = judged(raw)
    if metrics is None:
        assert raw[4:] in (bytes(len(raw) - 4), b"\xff" * (len(raw) - 4))
    else:
        assert metrics.table in {f"v{form}_{content}" for form, content in DECODED}


@unhurried
@given(filled(), st.data())
def test_what_is_cut_short_is_refused(raw: bytes, data: st.DataObject) -> None:
    assert judged(raw[: data.draw(st.integers(0, len(raw) - 1))]) is None


@unhurried
@given(filled(), st.integers(0, 0xFFFF))
def test_another_size_is_refused(raw: bytes, size: int) -> None:
    metrics = judged(struct.pack("<H", size) + raw[2:] + bytes(0xFFFF))
    assert metrics is None or size == len(raw)


@unhurried
@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=400), st.integers(0, 0xFFFF))
@example(1, 9, bytes(400), 404)
def test_an_unknown_version_is_refused(form: int, content: int, body: bytes, size: int) -> None:
    metrics = judged(struct.pack("<HBB", size, form, content) + body)
    assert metrics is None or (form, content) in {*DECODED, (1, 9)}


@unhurried
@given(describing(), st.data())
def test_any_description_is_readings_or_refused(raw: bytes, data: st.DataObject) -> None:
    judged(raw)
    judged(raw[: data.draw(st.integers(0, len(raw)))])


@unhurried
@given(st.binary(max_size=5000))
@example(b"\xff" * 4096)
@example(b"")
def test_any_bytes(raw: bytes) -> None:
    judged(raw)


@unhurried
@given(VERSIONS, st.data())
def test_impossible_temperatures_are_counted_and_the_rest_is_served(
    version: tuple[int, int], data: st.DataObject
) -> None:
    apu = version[0] > 1
    field = "temperature_gfx" if apu else "temperature_hotspot"
    limit = 20_000 if apu else 200
    raw = data.draw(st.integers(limit + 1, 0xFFFE))
    metrics = judged(table(*version, **{field: raw}, system_clock_counter=5_000_000_000))
    assert metrics is not None
    assert metrics.temperature_celsius == {}
    assert metrics.rejected == ("temperature_celsius",)
    assert metrics.energy_counter_at == 5.0


@unhurried
@given(st.lists(filled() | st.binary(max_size=50) | st.none(), min_size=1, max_size=8))
def test_any_row_of_files_passes_the_reader(files: list[bytes | None]) -> None:
    reader, throttling = TableReader(), Throttling()
    before: dict[str, float] = {}
    left = list(files)
    while left:
        try:
            metrics = reader.read(lambda: left.pop(0) if left else None)
        except RefusedError:
            continue
        if metrics is None:
            continue
        throttled, seconds = throttling.step(metrics)
        assert set(throttled) | set(seconds) <= set(REASONS)
        assert all(math.isfinite(value) and value >= 0 for value in seconds.values())
        if before.keys() == seconds.keys():
            assert all(value >= before[reason] or value == 0 for reason, value in seconds.items())
        before = dict(seconds)
