"""No family is shown without end: what is beyond is left off and counted."""

from exporter.exposition.family import MOST_SERIES, Family
from exporter.metrics import Block, MetricSpec


def test_a_family_has_no_more_series_than_it_may_and_the_rest_is_counted() -> None:
    spec: MetricSpec[dict[str, float]] = MetricSpec("gpu_test", "A test.", lambda w: w, Block.STATE, labels=("name",))
    family = Family(spec, ("gpu",))
    for first in (0, 1_000_000):
        values = {f"n{first + number:07}": 1.0 for number in range(MOST_SERIES + 7)}
        lines = family.render([("g",)], [values])
        assert lines.dropped == 7
        assert lines.plain.count("\n") == MOST_SERIES
        assert f'name="n{first + MOST_SERIES - 1:07}"' in lines.plain
        assert len(family._texts) <= 2 * MOST_SERIES + 64
    assert family.render([("g",)], [{"one": 1.0}]).plain == 'gpu_test{gpu="g",name="one"} 1.0\n'
    assert len(family._texts) == 1
