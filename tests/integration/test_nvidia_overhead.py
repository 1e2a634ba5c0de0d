"""An energy read stays near the calls that it cannot do without; tests/benchmarks/measure.py is the long form."""

import pytest

from tests.benchmarks.energy_read import compare

MOST = 11.0
"""Times the floor; 5 to 6 with one call for all of it, 17 with a call and a closure for each reading."""


@pytest.mark.parametrize("model", ["A100-SXM", "H100-SXM"])
def test_a_read_of_energy_costs_little_more_than_the_least_calls(model: str) -> None:
    floor, read = compare(model)
    assert read / floor < MOST, (floor, read)
