"""Whatever the files of i915 and xe say, and whatever error they answer, a read gives readings, or none."""

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drm import card
from tests.unit.drm.bench import ALL, Bench
from tests.unit.drm.test_drm_garbage import WORDS, check
from tests.unit.drm.test_intel import arc_i915, battlemage

CARDS: dict[str, dict[str, Any]] = {
    "i915": arc_i915() | {"drm/card0/lmem_total_bytes": 2**34, "drm/card0/lmem_avail_bytes": 2**33},
    "xe": battlemage(),
}


@pytest.fixture(scope="module", params=CARDS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def root(driver: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    card(folder, 0, CARDS[driver], driver=driver)
    return folder


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_file_can_break_a_read(root: Path, driver: str, data: st.DataObject) -> None:
    paths = st.sampled_from([*sorted(CARDS[driver]), "uevent", "vendor", "power/runtime_status"])
    bench = Bench(root)
    bench.answers.said = data.draw(st.dictionaries(paths, WORDS, max_size=6))
    bench.answers.errors = data.draw(st.dictionaries(paths, st.sampled_from(sorted(errno.errorcode)), max_size=3))
    for _ in range(2):
        for device in bench.provider.devices():
            check(bench.provider.read(device, ALL))
    bench.answers.said, bench.answers.errors = {}, {}
    bench.now += 10
    sample = bench.read()
    assert sample.energy_counter_joules is not None
    assert sample.clock_hertz["graphics"] in (2.4e9, 2.85e9)
