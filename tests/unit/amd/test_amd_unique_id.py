import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.unique_id import Named, keys, unique_id


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        ("67c63ac3c3c637f9\n", "67c63ac3c3c637f9"),
        ("0x67C63AC3C3C637F9", "67c63ac3c3c637f9"),
        ("67C63AC3C3C637F9", "67c63ac3c3c637f9"),
        ("0x2", "0000000000000002"),
        (b"a32343daf897162a\n", "a32343daf897162a"),
        ("0x0000000000000000", None),
        ("0", None),
        ("ffffffffffffffff", None),
        ("N/A", None),
        ("", None),
        ("0x", None),
        ("PCB123", None),
        ("0x123456789012345678", None),
        (None, None),
        (7, None),
    ],
)
def test_a_unique_id_has_16_digits_or_is_none(raw: object, known: str | None) -> None:
    assert unique_id(raw) == known


@given(st.integers(1, 2**64 - 2))
def test_what_amd_smi_and_sysfs_say_of_one_card_is_one_key(number: int) -> None:
    said = (f"0x{number:016X}", f"0x{number:X}", f"{number:016X}", f"{number:016x}\n")
    assert {unique_id(each) for each in said} == {f"{number:016x}"}


def test_cards_that_share_a_number_or_have_none_go_by_their_address() -> None:
    cards = [
        Named("67c63ac3c3c637f9", "0000:23:00.0"),
        Named("67c63ac3c3c637f9", "0000:26:00.0"),
        Named(None, "0000:29:00.0"),
        Named("a32343daf897162a", "0000:2c:00.0"),
        Named(None, None),
    ]
    assert keys(cards) == ("0000:23:00.0", "0000:26:00.0", "0000:29:00.0", "a32343daf897162a", None)
