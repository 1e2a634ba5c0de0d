from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import LinkSample
from exporter.providers.amd.links import read_links
from exporter.providers.sanitise import Readings
from tests.unit.amd.vendor import gpu, read

NONE = 2**64 - 1


def links(received: Any, sent: Any = (), states: Any = ()) -> tuple[LinkSample, ...] | None:
    metrics = {"xgmi_read_data_acc": received, "xgmi_write_data_acc": list(sent), "xgmi_link_status": list(states)}
    return read_links(metrics, Readings())


def link(number: int, **known: Any) -> LinkSample:
    return LinkSample(kind="xgmi", link=str(number), **known)


@pytest.mark.parametrize(
    ("received", "sent", "states", "expected"),
    [
        (
            [1, 0, "N/A", 5],
            [2, 0, "N/A", 0],
            [1, 0, "N/A", 1],
            (
                link(0, up=True, receive_bytes=1024, transmit_bytes=2048),
                link(1, up=False, receive_bytes=0, transmit_bytes=0),
                link(3, up=True, receive_bytes=5120, transmit_bytes=0),
            ),
        ),
        ([1, NONE], [2, NONE], (), (link(0, receive_bytes=1024, transmit_bytes=2048),)),  # ROCm 6.0: not translated
        ([1], [2], [65535], (link(0, receive_bytes=1024, transmit_bytes=2048),)),
        (["N/A"] * 8, ["N/A"] * 8, [1, "N/A"], (link(0, up=True),)),
        ([0] * 8, [0] * 8, (), None),  # what some releases answer of tables without the fields
        ([0] * 8, [0] * 8, [0] * 8, None),
        (["N/A"] * 8, ["N/A"] * 8, ["N/A"] * 8, None),
        ("N/A", (), (), None),  # the whole of the metrics, where they cannot be read (ROCm 7)
        (None, (), (), None),
    ],
)
def test_a_link_is_one_that_says_something(
    received: Any, sent: Any, states: Any, expected: tuple[LinkSample, ...] | None
) -> None:
    assert links(received, sent, states) == expected


def test_links_come_from_the_table_that_is_read_for_other_things_too() -> None:
    sample = read(gpu(gpu_metrics_info={"xgmi_read_data_acc": [3, "N/A"], "xgmi_write_data_acc": [4, "N/A"]}))
    assert sample.links == (link(0, receive_bytes=3072, transmit_bytes=4096),)
    assert read(gpu(gpu_metrics_info={"num_partition": 1})).links is None


values = st.one_of(st.sampled_from(["N/A", None, True, -1, 2**63, NONE, "3"]), st.integers(0, 2**65))


@given(st.lists(values, max_size=40), st.lists(values, max_size=40), st.lists(values, max_size=40))
def test_no_list_breaks_it_and_numbers_are_never_negative(received: Any, sent: Any, states: Any) -> None:
    for found in links(received, sent, states) or ():
        assert 0 <= int(found.link) < 32
        assert (found.receive_bytes or 0) >= 0
        assert (found.transmit_bytes or 0) >= 0
