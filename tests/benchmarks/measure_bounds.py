"""How far is the energy of a measured window off, and what does the result itself say? The table of docs/measure.md.

python -m tests.benchmarks.measure_bounds prints it; --windows N measures N windows of each load instead of 2. Seeds are
fixed: the same code gives the same table. It takes some minutes.
"""

import argparse
from collections.abc import Iterator

from tests.unit.measure.test_bounds import FAST, SLOW, Found, found

SENSORS = {
    "accumulator, a minute of readings around it": ("H100-SXM", FAST, "honest", 75.0),
    "average over 1 s (H100)": ("H100-SXM", FAST, "absent", 5.0),
    "instant, 25 of each 100 ms (A100)": ("A100-SXM", FAST, "absent", 5.0),
    "instant, all of the time (T4, MI300X)": ("MI300X", FAST, "absent", 5.0),
    "average over 1 s (H100), read once a second": ("H100-SXM", SLOW, "absent", 5.0),
    "instant, all of the time, read once a second": ("MI300X", SLOW, "absent", 5.0),
}
LENGTHS = (5.0, 60.0, 600.0)


def rows(windows: int) -> Iterator[list[str]]:
    yield ["measured by", *(f"{length:g} s" for length in LENGTHS)]
    yield ["---"] * (len(LENGTHS) + 1)
    for name, (model, interval, accumulator, before) in SENSORS.items():
        cells = []
        for length in LENGTHS:
            seeds = range(100, 100 + windows)
            seen = [
                each
                for seed in seeds
                for each in found(model, length, interval, seed, accumulator=accumulator, before=before)
            ]
            cells.append(_cell(seen))
        yield [name, *cells]


def _cell(seen: list[Found]) -> str:
    """The largest error of all windows in %, and the median of what was said."""
    assert all(each.used <= 1 for each in seen)
    worst = max(abs(each.joules / each.true - 1) for each in seen)
    said = sorted(each.said / each.joules for each in seen)[len(seen) // 2]
    return f"{float(f'{100 * worst:.2g}'):g} ({float(f'{100 * said:.2g}'):g})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=2)
    for row in rows(parser.parse_args().windows):
        print(f"| {' | '.join(row)} |", flush=True)
