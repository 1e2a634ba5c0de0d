import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.model import Device, Group, Groups, ProcessSample, Sample
from exporter.supervision import frames

DEVICE = Device(vendor="test", key="GPU-1")
REPORTS: list[frames.Report] = [
    frames.Opened("1.0"),
    frames.Opened(None),
    frames.Enumerating(),
    frames.Enumerated((DEVICE,)),
    frames.Sampled(Sample(device=DEVICE, power_watts=0.0, taken_at={Group.ENERGY: 1.5})),
    frames.PassTook({Group.ENERGY: 0.1, Group.LOAD: 0.2}),
    frames.Waiting(0.1),
    frames.FreshDone(3),
    frames.Failed("lost", "the driver is gone"),
]
REQUESTS: list[frames.Request] = [
    frames.Start(request=frames.WorkerRequest(provider="nvidia"), sampling=SamplingConfig(), exclude=("GPU-1",)),
    frames.Fresh(7),
    frames.Exclude(("GPU-1",)),
    frames.Relieve(("GPU-1", "GPU-2")),
    frames.Shutdown(),
]


@given(st.lists(st.sampled_from(REPORTS)), st.randoms(use_true_random=False))
def test_reports_cut_anywhere_arrive_whole_and_in_order(sent: list[frames.Report], random: Random) -> None:
    data = b"".join(frames.encode(report) for report in sent)
    inbox = frames.reports()
    heard: list[frames.Report] = []
    while data:
        size = random.randint(1, len(data))
        heard += inbox.feed(data[:size])
        data = data[size:]
    assert heard == sent


def test_requests_arrive_as_they_were_sent() -> None:
    data = b"".join(frames.encode(request) for request in REQUESTS)
    assert list(frames.requests().feed(data)) == REQUESTS


@given(st.binary(max_size=200))
def test_garbage_gives_a_frame_error_or_nothing(data: bytes) -> None:
    with contextlib.suppress(frames.FrameError):
        for report in frames.reports().feed(data):
            assert isinstance(report, frames.Report)


@given(st.binary(max_size=100), st.integers(0, 100))
def test_a_damaged_sample_gives_a_frame_error_or_a_report(noise: bytes, place: int) -> None:
    payload = bytearray(frames.encode(REPORTS[5]))
    payload[4 + place % (len(payload) - 4) :] = noise
    payload[:4] = (len(payload) - 4).to_bytes(4, "big")
    with contextlib.suppress(frames.FrameError):
        for report in frames.reports().feed(bytes(payload)):
            assert isinstance(report, frames.Report)


def test_a_frame_beyond_the_bound_is_refused_before_it_is_received() -> None:
    with pytest.raises(frames.FrameError, match="16777217 bytes"):
        list(frames.reports().feed((frames.MAX_FRAME_BYTES + 1).to_bytes(4, "big")))


def test_a_wrong_type_is_told_with_its_place() -> None:
    broken = frames.encode(frames.Sampled(Sample(device=DEVICE, power_watts="many")))  # type: ignore[arg-type] -- a provider's mistake
    with pytest.raises(frames.FrameError, match=r"power_watts"):
        list(frames.reports().feed(broken))


def test_reports_before_a_bad_one_are_still_heard() -> None:
    inbox = frames.reports()
    stream = inbox.feed(frames.encode(REPORTS[0]) + b"\0\0\0\1\xc1")
    assert next(stream) == REPORTS[0]
    with pytest.raises(frames.FrameError):
        next(stream)


def test_a_lone_surrogate_costs_a_character_and_not_the_device() -> None:
    sample = Sample(device=DEVICE, processes=(ProcessSample(pid=1, name="bad\udcff"), ProcessSample(pid=2, name="ok")))
    (report,) = frames.reports().feed(frames.encode(frames.Sampled(sample)))
    assert isinstance(report, frames.Sampled)
    assert report.sample.processes == (ProcessSample(pid=1, name="bad?"), ProcessSample(pid=2, name="ok"))


def test_a_number_beyond_64_bits_costs_itself_and_not_the_device() -> None:
    devices = (Device(vendor="test", key="a", index=2**64, minor=3), Device(vendor="test", key="b", index=-(2**63)))
    [heard] = frames.reports().feed(frames.encode(frames.Enumerated(devices)))
    assert isinstance(heard, frames.Enumerated)
    assert [(device.key, device.index, device.minor) for device in heard.devices] == [
        ("a", None, 3),
        ("b", -(2**63), None),
    ]


def test_nothing_of_a_sample_is_lost_on_the_way() -> None:
    sample = Sample(
        device=DEVICE,
        processes=(),
        partitions=(),
        throttled={"power": False},
        utilization_ratio=0.0,
        taken_at=dict.fromkeys(Groups({Group.STATE, Group.PROCESSES}), 12.5),
    )
    (report,) = frames.reports().feed(frames.encode(frames.Sampled(sample)))
    assert report == frames.Sampled(sample)
