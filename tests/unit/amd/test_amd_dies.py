from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Sample
from exporter.providers.amd.dies import is_dual_die
from exporter.providers.amd.provider import AmdProvider
from tests.unit.amd.vendor import ALL, FakeAmdsmi, Handle, error, gpu, provider

BUSES = (0xC1, 0xC6, 0xC9, 0xCE, 0xD1, 0xD6, 0xD9, 0xDE)


def dies(count: int, **each: Any) -> list[Handle]:
    """Dies in the order of AMD SMI; `each`: answers by function, a list of one for each."""
    return [
        gpu(
            gpu_device_bdf=f"0000:{BUSES[number]:02x}:00.0",
            gpu_asic_info={"asic_serial": f"0xA3{number}", "market_name": "AMD Instinct MI250X", "device_id": "0x7408"},
            **{name: answers[number] for name, answers in each.items()},
        )
        for number in range(count)
    ]


def packages(opened: AmdProvider) -> list[int]:
    """For each die, the place of the first die of its package."""
    listed = opened.devices()
    keys = [device.key for device in listed]
    return [keys.index(device.package or "") for device in listed]


def boards(*serials: str) -> dict[str, Any]:
    return {"gpu_board_info": [{"product_serial": serial} for serial in serials]}


def linked(handles: list[Handle], *couples: tuple[int, int], wide: int = 200_000, narrow: int = 50_000) -> list[Handle]:
    """Let the links within the couples be wide, and those between all others narrow."""
    together = [{handles[one], handles[other]} for one, other in couples]
    for handle in handles:

        def bandwidth(other: Handle, handle: Handle = handle) -> dict[str, int]:
            return {"min_bandwidth": narrow, "max_bandwidth": wide if {handle, other} in together else narrow}

        handle.answers["amdsmi_get_minmax_bandwidth_between_processors"] = bandwidth
    return handles


def test_the_serial_number_of_the_board_tells_the_package() -> None:
    assert packages(provider(FakeAmdsmi(*dies(4, **boards("A", "B", "B", "A"))))) == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "serials",
    [
        ("N/A",) * 4,  # none has one
        ("A", "A", "A", "A"),  # that of the host
        ("A", "B", "C", "D"),  # each its own
        ("A", "A", "B", "N/A"),
    ],
)
def test_where_it_does_not_the_widest_link_does(serials: tuple[str, ...]) -> None:
    handles = linked(dies(4, **boards(*serials)), (0, 3), (1, 2))
    assert packages(provider(FakeAmdsmi(*handles))) == [0, 1, 1, 0]


def test_two_links_to_another_package_are_narrower_than_four_within_one() -> None:
    handles = linked(dies(8), (0, 1), (2, 3), (4, 5), (6, 7))
    for one, other in ((0, 6), (2, 4)):
        inner = handles[one].answers["amdsmi_get_minmax_bandwidth_between_processors"]

        def bandwidth(to: Handle, inner: Any = inner, wider: Handle = handles[other]) -> dict[str, int]:
            return {"max_bandwidth": 100_000} if to is wider else inner(to)

        handles[one].answers["amdsmi_get_minmax_bandwidth_between_processors"] = bandwidth
    assert packages(provider(FakeAmdsmi(*handles))) == [0, 0, 2, 2, 4, 4, 6, 6]


@pytest.mark.parametrize("code", [1, 2])
def test_dies_without_a_link_between_them_are_not_of_one_package(code: int) -> None:
    handles = linked(dies(8), (0, 7), (1, 6), (2, 5), (3, 4))
    for number, handle in enumerate(handles):
        inner = handle.answers["amdsmi_get_minmax_bandwidth_between_processors"]

        def bandwidth(to: Handle, inner: Any = inner, number: int = number) -> dict[str, int]:
            if handles.index(to) + number != 7 and (handles.index(to) + number) % 2:
                raise error(code)
            answer: dict[str, int] = inner(to)
            return answer

        handle.answers["amdsmi_get_minmax_bandwidth_between_processors"] = bandwidth
    assert packages(provider(FakeAmdsmi(*handles))) == [0, 1, 2, 3, 3, 2, 1, 0]


def test_without_evidence_neighbours_are_a_package() -> None:
    assert packages(provider(FakeAmdsmi(*dies(4)))) == [0, 0, 2, 2]
    alike = linked(dies(4), wide=50_000)
    assert packages(provider(FakeAmdsmi(*alike))) == [0, 0, 2, 2]
    not_told = dies(4, minmax_bandwidth_between_processors=[{"max_bandwidth": 2**64 - 1}] * 4)
    assert packages(provider(FakeAmdsmi(*not_told))) == [0, 0, 2, 2]


def test_of_an_odd_number_none_is_paired() -> None:
    assert packages(provider(FakeAmdsmi(*dies(3)))) == [0, 1, 2]
    assert packages(provider(FakeAmdsmi(*dies(1)))) == [0]


@pytest.mark.parametrize("code", [2, 12, 30])
def test_pairs_that_were_proven_stay_when_the_evidence_fails_for_once(code: int) -> None:
    handles = dies(4, **boards("A", "B", "B", "A"))
    opened = provider(FakeAmdsmi(*handles))
    assert packages(opened) == [0, 1, 1, 0]
    for handle in handles:
        handle.answers["amdsmi_get_gpu_board_info"] = error(code)
    assert packages(opened) == [0, 1, 1, 0]


def test_evidence_is_looked_for_again_until_there_is_some() -> None:
    handles = dies(4)
    opened = provider(FakeAmdsmi(*handles))
    assert packages(opened) == [0, 0, 2, 2]
    linked(handles, (0, 2), (1, 3))
    assert packages(opened) == [0, 1, 0, 1]


def test_the_sensor_of_the_first_die_counts_once_for_both() -> None:
    powers = [{"average_socket_power": watts} for watts in (89, 0, 93, 0)]
    caps = [{"power_cap": limit, "default_power_cap": limit} for limit in (560, 0, 560, 0)]
    handles = linked(dies(4, power_info=powers, power_cap_info=caps), (0, 3), (1, 2))
    handles[2].answers["amdsmi_get_power_info"], handles[1].answers["amdsmi_get_power_info"] = powers[1], powers[2]
    opened = provider(FakeAmdsmi(*handles))
    samples: list[Sample] = [opened.read(device, ALL) for device in opened.devices()]
    assert [sample.power_watts for sample in samples] == [89, 93, None, None]
    assert sum(sample.power_watts or 0 for sample in samples) == 182
    assert {sample.power_scope for sample in samples} == {"package"}


@given(st.permutations(range(8)), st.sampled_from(["boards", "links"]))
def test_any_pairs_are_found_whatever_their_order(order: list[int], evidence: str) -> None:
    couples = [(order[place], order[place + 1]) for place in range(0, 8, 2)]
    if evidence == "boards":
        serial = {die: f"S{number}" for number, couple in enumerate(couples) for die in couple}
        handles = dies(8, **boards(*(serial[die] for die in range(8))))
    else:
        handles = linked(dies(8), *couples)
    found = packages(provider(FakeAmdsmi(*handles)))
    assert sorted((min(couple), max(couple)) for couple in couples) == sorted(
        (first, die) for die, first in enumerate(found) if die != first
    )


@pytest.mark.parametrize("told", [[0x740C], {"id": 0x740C}, None, 7.5, "0xzz"])
def test_an_id_that_is_no_number_is_none_of_a_dual_die(told: object) -> None:
    assert not is_dual_die({"device_id": told, "market_name": "N/A"})
