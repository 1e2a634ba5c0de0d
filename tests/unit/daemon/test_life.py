"""When the daemon counts as alive: the decision behind the watchdog and /-/healthy."""

import pytest

from exporter.daemon.life import STALL_SECONDS, turns


@pytest.mark.parametrize(
    ("silent", "watchdog", "alive"),
    [
        (0.0, None, True),
        (STALL_SECONDS, None, True),
        (STALL_SECONDS + 0.1, None, False),
        (STALL_SECONDS, 60.0, True),
        (STALL_SECONDS + 0.1, 60.0, False),
        (1.0, 2.0, True),
        (1.1, 2.0, False),
    ],
)
def test_a_supervisor_that_stands_still_gives_no_sign_of_life(
    silent: float, watchdog: float | None, alive: bool
) -> None:
    assert turns(1000.0 + silent, 1000.0, watchdog) is alive
