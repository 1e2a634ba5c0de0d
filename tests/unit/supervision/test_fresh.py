"""Whoever waits for fresh energy is let go when it has come, or cannot come any more."""

import asyncio
from collections.abc import Callable

import pytest

from exporter.model import Device, Group, Sample
from exporter.supervision.fresh import FreshRequests


def read(key: str, at: float) -> Sample:
    return Sample(device=Device(vendor="test", key=key), taken_at={Group.ENERGY: at})


def test_only_listed_devices_that_gave_a_reading_make_a_request_needed() -> None:
    async def test() -> None:
        requests = FreshRequests()
        requests.enumerated(["a", "b"])
        assert not requests.is_needed(100.0)
        requests.sampled(read("a", 99.0))
        assert requests.is_needed(100.0)
        requests.sampled(read("a", 99.98))
        assert not requests.is_needed(100.0)
        requests.sampled(read("strange", 1.0))
        assert not requests.is_needed(100.0)
        requests.sampled(read("b", 50.0))
        assert requests.is_needed(100.0)
        requests.sampled(Sample(device=Device(vendor="test", key="b"), lost=True))
        assert not requests.is_needed(100.0)
        requests.enumerated([])
        assert not requests.is_needed(200.0)

    asyncio.run(test())


def test_nothing_fresh_is_needed_of_what_another_provider_delivers() -> None:
    async def test() -> None:
        requests = FreshRequests()
        requests.enumerated(["a", "b"])
        requests.sampled(read("a", 90.0))
        requests.relieve(frozenset({"a"}))
        assert not requests.is_needed(100.0)
        requests.sampled(read("b", 99.0))
        assert requests.is_needed(100.0)
        requests.sampled(read("b", 99.99))
        assert not requests.is_needed(100.0)
        requests.relieve(frozenset())
        assert requests.is_needed(100.0)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("happens", "answered"),
    [
        (lambda requests, token: requests.done(token), True),
        (lambda requests, token: requests.done(token - 1), False),
        (lambda requests, _: requests.gone(7), True),
        (lambda requests, _: requests.gone(6), False),
    ],
    ids=["its answer", "a late answer", "the end of the child", "the end of another"],
)
def test_a_request_ends_with_its_answer_or_its_child(
    happens: Callable[[FreshRequests, int], None], answered: bool
) -> None:
    async def test() -> None:
        requests = FreshRequests()
        request = requests.next()
        answer = requests.asked(7, 10.0)
        assert requests.shared(10.01, 0.05) is answer
        assert requests.shared(10.06, 0.05) is None, "it is late"
        happens(requests, request.token)
        assert answer.done() == answered
        assert requests.awaited != answered
        happens(requests, request.token)

    asyncio.run(test())
