from random import Random

from hypothesis import given
from hypothesis import strategies as st

from exporter.supervision.quarantine import SOON_SECONDS, Quarantine, Verdict

DEVICES = ("a", "b", "c", "d")


def test_the_second_miss_holds_a_device() -> None:
    quarantine = Quarantine(Random(1))
    assert quarantine.missed("a", DEVICES, 0.0) is Verdict.STRIKE
    assert quarantine.missed("a", DEVICES, 10.0) is Verdict.QUARANTINE
    assert quarantine.held == {"a"}


def test_the_only_device_is_held_as_well() -> None:
    quarantine = Quarantine(Random(1))
    quarantine.missed("a", ("a",), 0.0)
    assert quarantine.missed("a", ("a",), 10.0) is Verdict.QUARANTINE


def test_long_after_a_first_a_second_device_can_be_held() -> None:
    quarantine = Quarantine(Random(1))
    for key, at in (("a", 0.0), ("a", 10.0), ("b", 80.0), ("b", 90.0)):
        verdict = quarantine.missed(key, DEVICES, at)
    assert verdict is Verdict.QUARANTINE
    assert quarantine.held == {"a", "b"}


def test_when_no_device_would_be_left_it_is_an_outage() -> None:
    quarantine = Quarantine(Random(1))
    for key, at in (("a", 0.0), ("a", 10.0), ("b", 80.0)):
        verdict = quarantine.missed(key, ("a", "b"), at)
    assert verdict is Verdict.OUTAGE
    assert quarantine.held == frozenset()


def test_in_an_outage_no_device_is_blamed_until_the_provider_was_well() -> None:
    quarantine = Quarantine(Random(1))
    for key, at in (("a", 0.0), ("a", 10.0), ("b", 20.0)):
        quarantine.missed(key, DEVICES, at)
    assert quarantine.missed("c", DEVICES, 500.0) is Verdict.OUTAGE
    quarantine.recovered()
    assert quarantine.missed("c", DEVICES, 600.0) is Verdict.STRIKE


def test_a_device_taken_back_keeps_its_back_off_until_it_is_forgiven() -> None:
    quarantine = Quarantine(Random(1))
    quarantine.missed("a", DEVICES, 0.0)
    quarantine.missed("a", DEVICES, 0.0)
    assert quarantine.due(4.0) is None
    assert quarantine.due(6.0) == "a"
    quarantine.tried("a", 6.0, answered=True)
    assert quarantine.missed("a", DEVICES, 20.0) is Verdict.QUARANTINE
    assert quarantine.due(28.0) is None
    assert quarantine.due(32.0) == "a"
    quarantine.tried("a", 32.0, answered=True)
    quarantine.answered("a", 93.0)
    assert quarantine.missed("a", DEVICES, 94.0) is Verdict.STRIKE


_STEP = st.tuples(
    st.sampled_from(["missed", "answered", "probe", "dead probe", "recovered", "removed"]),
    st.sampled_from(DEVICES),
    st.floats(0.0, 100.0),
)


@given(st.lists(_STEP, max_size=60))
def test_whatever_happens_no_second_device_is_held_soon_after_a_first(steps: list[tuple[str, str, float]]) -> None:
    quarantine = Quarantine(Random(1))
    now, held_at = 0.0, -SOON_SECONDS
    for what, key, later in steps:
        now += later
        before = quarantine.held
        match what:
            case "missed" if key not in before:
                quarantine.missed(key, DEVICES, now)
            case "answered" if key not in before:
                quarantine.answered(key, now)
            case "probe" | "dead probe":
                if (due := quarantine.due(now)) is not None:
                    quarantine.tried(due, now, answered=what == "probe")
            case "recovered":
                quarantine.recovered()
            case "removed":
                quarantine.enumerated(set(DEVICES) - {key})
            case _:
                pass
        if quarantine.held - before:
            assert len(quarantine.held - before) == 1
            assert not before or now - held_at >= SOON_SECONDS
            held_at = now
        assert len(quarantine.held) < len(DEVICES)
