"""A file is understood as it was written, or refused with a reason."""

import math
import re
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.fleet.record import (
    MOST_RECORDS,
    MOST_WORKLOADS,
    MOST_WORKLOADS_IN_ALL,
    CardRecord,
    FleetRecord,
    TenancyRecord,
    WorkloadRecord,
)
from exporter.journal.format import MAX_BYTES, VERSION, Content, JournalError, decode, encode
from tests.unit.fleet.tenants import pod
from tests.unit.journal.records import BOOT, record

CONTENT = Content(boot_id=BOOT, at=2_000.0, fleet=record())
DATA = encode(CONTENT)
BODY = DATA[DATA.index(b"\n") + 1 :]


def framed(body: bytes, version: int = VERSION) -> bytes:
    return f"gpu-exporter journal {version} {zlib.crc32(body):08x} {len(body)}\n".encode() + body


def changed(**fields: object) -> bytes:
    """Return the file with one card, and fields of it that another program wrote."""
    (card, *_) = msgspec.to_builtins(CONTENT.fleet.cards)
    tree = {**msgspec.to_builtins(CONTENT), "fleet": {"cards": [{**card, **fields}]}}
    return framed(msgspec.msgpack.encode(tree))


def refusal(data: bytes) -> str:
    with pytest.raises(JournalError) as caught:
        decode(data)
    return str(caught.value)


def test_what_was_written_is_read() -> None:
    assert decode(DATA) == CONTENT
    assert framed(BODY) == DATA


def test_a_field_that_is_new_takes_its_default_and_one_that_is_gone_is_passed_over() -> None:
    tree = {**msgspec.to_builtins(CONTENT), "altitude": 3}
    del tree["fleet"]["numbers"]
    assert decode(framed(msgspec.msgpack.encode(tree))).fleet.cards == CONTENT.fleet.cards


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x02\x01", "is not a journal of gpu-exporter"),
        (b"gpu-exporter journal\n", "is not a journal of gpu-exporter"),
        (framed(BODY, version=0), "has format 0, and this version of gpu-exporter reads format 1"),
        (framed(BODY, version=2), "has format 2, and this version of gpu-exporter reads format 1"),
        (b"gpu-exporter journal 3 in another form\nrest", "has format 3"),
        (b"gpu-exporter journal 1\nrest", "is truncated"),
        (DATA[: len(DATA) // 2], "is truncated"),
        (DATA[:-1], "is truncated"),
        (DATA + b"\0", "has something appended"),
        (DATA[:-1] + bytes([DATA[-1] ^ 1]), "is damaged"),
        (framed(b"\xc1"), "is not understood"),
        (framed(b"\x80"), "is not understood"),
        (framed(b"\x91" * 100_000), "is not understood"),
        (changed(unseen_seconds=-1.0), "a negative time"),
        (changed(unseen_seconds=math.nan), "a number that is not finite"),
        (changed(order=["nvidia", -1]), "a negative label"),
        (changed(key=7), "is not understood"),
    ],
)
def test_anything_else_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    assert reason in refusal(data)


def test_what_cannot_be_true_is_refused() -> None:
    assert "a reading from the future" in refusal(encode(msgspec.structs.replace(CONTENT, at=1_000.0)))
    twice = FleetRecord(cards=(CONTENT.fleet.cards[0],) * 2)
    assert "a device twice" in refusal(encode(Content(boot_id=BOOT, at=2_000.0, fleet=twice)))
    many = tuple(CardRecord(key=str(number), provider="amd") for number in range(MOST_RECORDS + 1))
    assert "more than 256" in refusal(encode(Content(boot_id=BOOT, at=1.0, fleet=FleetRecord(cards=many))))
    same = tuple(CardRecord(key=key, provider="amd", order=("amd", 0)) for key in "ab")
    for numbers, reason in (
        ({"nvidia": -1}, "a label that was never given"),
        ({"nvidia": 2**64 - 1}, "a label that was never given"),
        ({f"vendor{number}": 1 for number in range(18)}, "more than 16 kinds of labels"),
    ):
        counted = FleetRecord(numbers=numbers)
        assert reason in refusal(encode(Content(boot_id=BOOT, at=1.0, fleet=counted)))
    assert "a label twice" in refusal(encode(Content(boot_id=BOOT, at=1.0, fleet=FleetRecord(cards=same))))


def divided(**fields: object) -> FleetRecord:
    """Return a fleet whose one card has used 27,600 J, of which these were divided."""
    (card, _) = CONTENT.fleet.cards
    return FleetRecord(cards=(msgspec.structs.replace(card, tenancy=TenancyRecord(**fields)),))


def kept(name: str, **amounts: float) -> WorkloadRecord:
    return WorkloadRecord(workload=pod(name), start_timestamp=1.79e9, **amounts)


def test_accounts_of_workloads_are_kept() -> None:
    accounts = (kept("a", active_joules=1.5, idle_joules=2.5, busy_seconds=3.5, allocated_seconds=4.5), kept("b"))
    fleet = divided(divided_joules=20_000.0, unattributed_joules=12_000.0, idle_watts=50.0, workloads=accounts)
    content = Content(boot_id=BOOT, at=2_000.0, fleet=fleet)
    assert decode(encode(content)) == content


def test_a_journal_of_before_there_were_workloads_is_read() -> None:
    tree = msgspec.to_builtins(CONTENT)
    for card in tree["fleet"]["cards"]:
        del card["tenancy"]
    assert decode(framed(msgspec.msgpack.encode(tree))) == CONTENT


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"divided_joules": 1e9}, "more joules divided than there were"),
        ({"divided_joules": 9.0, "unattributed_joules": 10.0}, "more joules charged than divided"),
        ({"divided_joules": 9.0, "workloads": (kept("a", active_joules=5.0, idle_joules=5.0),)}, "more joules charged"),
        ({"unattributed_joules": 1.0}, "more joules charged than divided"),
        ({"divided_joules": -1.0}, "a negative amount"),
        ({"idle_watts": -1.0}, "a negative amount"),
        ({"workloads": (kept("a", busy_seconds=-1.0),)}, "a negative amount"),
        ({"workloads": (kept("a", allocated_seconds=float("inf")),)}, "a number that is not finite"),
        ({"workloads": (kept("a"), kept("a"))}, "a workload twice"),
        ({"workloads": tuple(kept(str(n)) for n in range(MOST_WORKLOADS + 1))}, "more than 64 workloads"),
    ],
)
def test_accounts_that_cannot_be_true_are_refused(fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal(encode(Content(boot_id=BOOT, at=2_000.0, fleet=divided(**fields))))


def test_more_workloads_than_there_is_room_for_are_refused() -> None:
    (card, _) = CONTENT.fleet.cards
    full = TenancyRecord(workloads=tuple(kept(str(n)) for n in range(MOST_WORKLOADS)))
    count = MOST_WORKLOADS_IN_ALL // MOST_WORKLOADS + 1
    many = tuple(msgspec.structs.replace(card, key=str(n), order=("amd", n), tenancy=full) for n in range(count))
    assert "too many workloads" in refusal(encode(Content(boot_id=BOOT, at=2_000.0, fleet=FleetRecord(cards=many))))


@pytest.mark.parametrize("name", ["steps", "integral"])
def test_a_negative_total_is_refused(name: str) -> None:
    meter = msgspec.to_builtins(CONTENT.fleet.cards[0].meter)
    meter["ledger"][name] = {"value": -1.0}
    assert "a negative total" in refusal(changed(meter=meter))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    refusal(data)


@settings(deadline=None)
@given(st.data())
def test_a_file_that_is_damaged_anywhere_is_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(DATA) - 1))
    flipped = DATA[:at] + bytes([DATA[at] ^ data.draw(st.integers(1, 255))]) + DATA[at + 1 :]
    cut = data.draw(st.integers(0, len(DATA) - 1))
    for broken in (flipped, DATA[:cut], DATA[:at] + DATA[at + 1 :]):
        refusal(broken)


LEAVES = st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**63) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


@settings(deadline=None)
@given(st.data())
def test_content_that_is_checked_but_strange_is_refused_or_makes_sense(data: st.DataObject) -> None:
    tree = msgspec.to_builtins(CONTENT)
    place = tree
    for _ in range(data.draw(st.integers(0, 6))):
        children = [key for key in place if isinstance(place[key], dict)] if isinstance(place, dict) else []
        lists = [key for key in place if isinstance(place[key], list) and place[key]] if isinstance(place, dict) else []
        if not children and not lists:
            break
        key = data.draw(st.sampled_from(sorted(children + lists)))
        place = place[key] if key in children else place[key][0]
    if isinstance(place, dict) and place:
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(TREES)
    try:
        content = decode(framed(msgspec.msgpack.encode(tree)))
    except JournalError as error:
        assert re.match(r"is (not understood|impossible): ", str(error))  # noqa: PT017 -- both outcomes are right
        return
    assert decode(encode(content)) == content


def test_the_largest_fleet_fits() -> None:
    (card, _) = CONTENT.fleet.cards
    per_card = MOST_WORKLOADS_IN_ALL // MOST_RECORDS
    full = TenancyRecord(workloads=tuple(kept(f"{n:0>150}", active_joules=1 / 3) for n in range(per_card)))
    many = tuple(
        msgspec.structs.replace(card, key=f"GPU-{n:0>40}", order=("nvidia", n), tenancy=full)
        for n in range(MOST_RECORDS)
    )
    assert len(encode(Content(boot_id=BOOT, at=2_000.0, fleet=FleetRecord(cards=many)))) < MAX_BYTES / 4
