import math

import pytest

from exporter.supervision import frames
from exporter.supervision.child import Child, Role


@pytest.mark.parametrize("seconds", [120.0, 1e308, math.inf, math.nan])
def test_a_wait_is_too_long_some_time_whatever_was_announced(seconds: float) -> None:
    child = Child(1, Role.WORKER, 0.0, 1.0)
    child.heard(frames.Waiting(seconds), 0.0, 2.0, 20.0)
    assert not child.late(121.0, 2.0)
    assert child.late(123.0, 2.0)
