"""Whatever a kernel's files say, and whatever error they answer, a read gives readings within their bounds, or none."""

import errno
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Sample
from exporter.providers.sanitise import BYTES, CELSIUS, HERTZ, WATTS, Range
from exporter.supervision import frames
from tests.drm import card
from tests.unit.drm.bench import ALL, Bench, radeon

FIELDS = set(Sample.__struct_fields__)
PATHS = sorted(set(radeon()) | {"uevent", "vendor", "power/runtime_status", "current_compute_partition", "pp_dpm_sclk"})
WORDS = st.one_of(
    st.binary(max_size=200),
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.sampled_from([b"", b"\n", b"nan", b"inf", b"1e9", b"0x10", b"-1", b"N/A", b"ue: -1\nce: 1e3\n", b"1: 9Mhz *"]),
)
BOUNDS: Mapping[str, Range] = {
    "power_watts": WATTS,
    "power_limit_watts": WATTS,
    "utilization_ratio": Range(0.0, 1.0),
    "memory_used_bytes": BYTES,
    "memory_size_bytes": BYTES,
    "fan_speed_ratio": Range(0.0, 1.0),
    "temperature_celsius": CELSIUS,
    "clock_hertz": HERTZ,
}


def check(sample: Sample) -> None:
    assert set(sample.failed) | set(sample.rejected) | set(sample.sources) <= FIELDS
    assert list(frames.reports().feed(frames.encode(frames.Sampled(sample)))) == [frames.Sampled(sample)]
    for name, bounds in BOUNDS.items():
        value = getattr(sample, name)
        for number in value.values() if isinstance(value, Mapping) else (value,):
            assert number is None or (math.isfinite(number) and bounds.low <= number <= bounds.high), name


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    card(folder, 0, radeon(current_compute_partition="SPX"))
    return folder


@settings(max_examples=60)
@given(
    said=st.dictionaries(st.sampled_from(PATHS), WORDS, max_size=6),
    errors=st.dictionaries(st.sampled_from(PATHS), st.sampled_from(sorted(errno.errorcode)), max_size=3),
)
def test_no_file_can_break_a_read(root: Path, said: dict[str, bytes], errors: dict[str, int]) -> None:
    bench = Bench(root)
    (device,) = bench.provider.devices()
    check(bench.provider.read(device, ALL))
    bench.answers.said, bench.answers.errors = said, errors
    for _ in range(2):
        check(bench.provider.read(device, ALL))
        for listed in bench.provider.devices():
            msgspec.to_builtins(listed)
            check(bench.provider.read(listed, ALL))
    bench.answers.said, bench.answers.errors = {}, {}
    bench.now += 10
    again = bench.provider.read(bench.provider.devices()[0], ALL)
    assert again.power_watts == 97
