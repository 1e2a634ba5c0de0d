"""Errors that the driver reports are counted once each, and fatal ones are shown before they happen."""

import pytest

from exporter.fleet.events import MOST_CODES
from exporter.metrics import FATAL_EVENTS
from exporter.model import ErrorEvent, Group
from tests.unit.fleet.hosts import WALL, Host, card


def test_fatal_codes_are_there_at_zero_as_soon_as_somebody_listens() -> None:
    host = Host(card(1), card(2))
    host.read(card(1), Group.STATE, error_event_kinds=("xid",))
    host.read(card(2), Group.STATE)
    assert host.cards["nvidia0"].error_events == {("xid", code): 0 for code in FATAL_EVENTS["xid"]}
    assert host.cards["nvidia0"].error_event_timestamps == {}
    assert host.cards["nvidia1"].error_events == {}


def test_each_event_is_counted_and_the_newest_time_kept() -> None:
    host = Host(card(1))
    host.read(card(1), Group.STATE, error_events=(ErrorEvent(kind="xid", code="79", at=WALL + 5),))
    assert "state" in host.bumped(dict.fromkeys(host.versions, 0))
    before = host.versions
    host.wait(1)
    late = ErrorEvent(kind="xid", code="79", at=WALL + 3, count=2)
    host.read(card(1), Group.ENERGY, power_watts=1.0, error_events=(late, ErrorEvent(kind="ras", code="umc")))
    assert "state" in host.bumped(before)
    shown = host.cards["nvidia0"]
    assert shown.error_events == {("xid", "79"): 3, ("ras", "umc"): 1}
    assert shown.error_event_timestamps[("xid", "79")] == WALL + 5
    assert shown.error_event_timestamps[("ras", "umc")] == pytest.approx(host.wall + host.now, abs=0.01)


def test_the_last_words_of_a_lost_device_count() -> None:
    host = Host(card(1))
    host.read(card(1), lost=True, error_events=(ErrorEvent(kind="xid", code="79"),))
    assert host.cards["nvidia0"].error_events == {("xid", "79"): 1}


def test_codes_are_bounded_and_what_is_left_out_is_counted() -> None:
    host = Host(card(1))
    events = tuple(ErrorEvent(kind="xid", code=str(code)) for code in range(1000, 1000 + MOST_CODES + 3))
    host.read(card(1), Group.STATE, error_events=events)
    assert len(host.cards["nvidia0"].error_events) == MOST_CODES
    assert host.world.series_dropped == {"gpu_error_events_total": 3}
