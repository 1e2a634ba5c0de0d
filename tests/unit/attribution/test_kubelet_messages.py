"""Bytes that are no message of the kubelet's are an error, whatever they are."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.attribution.podresources import Pod, WireError, decode_get, decode_list, encode_get

POD = b"\x0a\x03web\x12\x04team"


@given(
    st.binary(max_size=64) | st.lists(st.sampled_from([b"\x0a", b"\x12", b"\x1a", b"\x03", POD, b"\xff"])).map(b"".join)
)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x80" * 11)
def test_any_bytes_are_a_list_of_pods_with_names_or_an_error(data: bytes) -> None:
    try:
        pods = decode_list(data)
    except WireError:
        return
    assert all(pod.name and pod.namespace for pod in pods)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "it is cut off, or a number is too long"),
        (b"\x0a\x05web", "it is cut off"),
        (b"\x80" * 11, "it is cut off, or a number is too long"),
        (b"\x02\x00", "a field has the number 0"),
        (b"\x0b\x0c", "a field has the wire type 3"),
        (b"\x08\x01", "a number where a message belongs"),
        (b"\x0a\x02\x08\x01", "a number where text belongs"),
        (b"\x0a\x03\x0a\x01\xff", "a text is not UTF-8"),
        (b"\x0a\x00", "a pod has no name"),
        (b"\x15\x00\x00", "it is cut off"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_list(data)
    assert str(caught.value) == reason


def test_fields_that_are_not_known_are_passed_over() -> None:
    unknown = b"\x90\x03\x2a" + b"\x99\x03" + bytes(8) + b"\x9d\x03" + bytes(4) + b"\xa2\x03\x02\xff\xff"
    pod = POD + unknown
    assert decode_list(unknown + b"\x0a" + bytes([len(pod)]) + pod) == (Pod("team", "web"),)
    assert decode_list(b"") == ()
    assert decode_get(b"") is None


def test_a_request_for_one_pod_names_it() -> None:
    assert encode_get("team", "w" * 200) == b"\x0a\xc8\x01" + b"w" * 200 + b"\x12\x04team"
