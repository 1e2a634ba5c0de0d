"""Links, fabric, recovery, firmware, and bytes over PCIe."""

from typing import Any

import pytest

from exporter.model import Fabric, Group, LinkSample, Sample
from tests.unit.nvidia.fake import FakeGpu, FakeNvml, Status, all_groups, gpu, only, opened, read

UINT, ULL = 1, 3
STATE = frozenset({Group.STATE})
HOPPER = {165: (UINT, 1), 138: (ULL, 2), 139: (ULL, 3), 161: (ULL, 4), 162: (ULL, 5), 163: (ULL, 6)}
BLACKWELL = {165: (UINT, 1), 202: (ULL, 2048), 204: (ULL, 3072), 161: (ULL, 4), 215: (ULL, 5), 221: (ULL, 7)}


def linked(count: int, each: dict[int, Any], **answers: Any) -> FakeGpu:
    card = gpu(**answers)
    card.fields = {(91, 0): (UINT, count)} | {(f, link): v for f, v in each.items() for link in range(count)}
    return card


def links_of(card: FakeGpu) -> tuple[LinkSample, ...] | None:
    sample = read(FakeNvml(card), Group.STATE)
    assert (sample.failed, sample.rejected) == ((), ())
    return sample.links


@pytest.mark.parametrize(
    ("each", "errors"),
    [
        (HOPPER, {"crc": 6.0, "recovery": 5.0, "replay": 4.0}),
        (BLACKWELL, {"recovery": 5.0, "replay": 4.0, "symbol": 7.0}),
    ],
)
def test_links_of_each_generation(each: dict[int, Any], errors: dict[str, float]) -> None:
    assert links_of(linked(2, each)) == tuple(
        LinkSample(kind="nvlink", link=link, up=True, receive_bytes=3072.0, transmit_bytes=2048.0, errors=errors)
        for link in "01"
    )


def test_links_of_ampere_count_errors_in_fields_of_their_own() -> None:
    card = linked(12, {138: (ULL, 2)}, nvmlDeviceGetNvLinkState=lambda link: int(link != 7))
    card.fields |= {(46 + n, 0): (ULL, n) for n in range(6)} | {(108 + n, 0): (ULL, 6 + n) for n in range(6)}
    links = links_of(card)
    assert links is not None
    assert [link.errors for link in links] == [{"replay": float(n)} for n in range(12)]
    assert [link.link for link in links if not link.up] == ["7"]
    assert {link.receive_bytes for link in links} == {None}
    assert {link.transmit_bytes for link in links} == {2048.0}


def test_one_call_gives_all_links_once_it_is_known_what_answers() -> None:
    library, times = FakeNvml(linked(18, HOPPER)), iter(range(100, 10_000, 5))
    provider = opened(library, clock=lambda: next(times))
    device = only(provider)
    first = provider.read(device, STATE)
    library.calls.clear()
    assert provider.read(device, STATE).links == first.links
    assert library.calls.count("nvmlDeviceGetFieldValues") == 1
    assert "nvmlDeviceGetNvLinkState" not in library.calls


@pytest.mark.parametrize(("state", "up"), [(0, False), (1, True), (2, True), (3, True)])
def test_a_link_that_saves_power_is_up(state: int, up: bool) -> None:
    links = links_of(linked(1, {165: (UINT, state)}))
    assert links is not None
    assert links[0].up is up


def test_no_links_are_told_from_links_that_cannot_be_told() -> None:
    assert links_of(linked(0, {})) == ()
    assert links_of(gpu()) is None


@pytest.mark.parametrize("later", [5.0, 700.0], ids=["as it is known", "as it is found out anew"])
def test_counter_that_breaks_once_is_absent_and_not_replaced_by_another(later: float) -> None:
    card, now = linked(1, {138: (ULL, 2), 202: (ULL, 9_999)}), [100.0]
    provider = opened(FakeNvml(card), clock=lambda: now[0])
    device = only(provider)
    provider.read(device, STATE)
    card.fields[138, 0] = Status(17)
    now[0] += later
    sample = provider.read(device, STATE)
    assert sample.links is not None
    assert (sample.links[0].transmit_bytes, sample.failed) == (None, ("links",))
    card.fields[138, 0] = (ULL, 3)
    now[0] += 5
    sample = provider.read(device, STATE)
    assert sample.links is not None
    assert (sample.links[0].transmit_bytes, sample.failed) == (3072.0, ())


def test_links_are_asked_for_every_five_seconds_at_most() -> None:
    card, now = linked(18, HOPPER, nvmlDeviceGetTemperatureV=40), [100.0]
    provider = opened(FakeNvml(card), clock=lambda: now[0])
    device = only(provider)
    first = provider.read(device, STATE).links
    card.fields[138, 3] = (ULL, 9)
    now[0] += 4
    assert provider.read(device, STATE).links == first
    now[0] += 1
    links = provider.read(device, STATE).links
    assert links is not None
    assert [link.transmit_bytes for link in links if link not in (first or ())] == [9 * 1024.0]


def test_absurd_number_of_links_is_rejected() -> None:
    sample = read(FakeNvml(_with({(91, 0): (UINT, 70_000)})), Group.STATE)
    assert (sample.links, sample.rejected) == (None, ("links",))


@pytest.mark.parametrize("signed", [4, 5])
def test_count_below_zero_is_rejected(signed: int) -> None:
    sample = read(FakeNvml(linked(1, HOPPER | {139: (signed, -5), 163: (signed, -1)})), Group.STATE)
    assert sample.rejected == ("links",)
    assert sample.links is not None
    assert (sample.links[0].receive_bytes, sample.links[0].transmit_bytes) == (None, 2048.0)
    assert sample.links[0].errors == {"recovery": 5.0, "replay": 4.0}


def _with(fields: dict[tuple[int, int], Any], **answers: Any) -> FakeGpu:
    card = gpu(**answers)
    card.fields = fields
    return card


@pytest.mark.parametrize(
    ("number", "action"),
    [(0, "none"), (1, "gpu_reset"), (4, "drain_and_reset"), (7, "system_reboot"), (8, None), (0xFFFFFFFF, None)],
)
def test_recovery_action(number: int, action: str | None) -> None:
    assert read(FakeNvml(_with({(230, 0): (UINT, number)})), Group.STATE).recovery_action == action


CLUSTER = bytes.fromhex("a3f1c2d45b604a7e8c910d2e3f4a5b6c")


def fabric_of(state: int, cluster: bytes = bytes(16), clique: int = 0, *, older: bool = False) -> Sample:
    function = "nvmlDeviceGetGpuFabricInfo" + ("" if older else "V")
    info = {"state": state, "clusterUuid": (type_of_uuid())(*cluster), "cliqueId": clique}
    return read(FakeNvml(gpu(**{function: info})), Group.STATE)


def type_of_uuid() -> Any:
    return FakeNvml.c_nvmlGpuFabricInfo_t().clusterUuid.__class__


@pytest.mark.parametrize("older", [False, True])
def test_fabric_over_several_hosts(older: bool) -> None:
    sample = fabric_of(3, CLUSTER, 7, older=older)
    assert sample.fabric == Fabric(state="completed", cluster_uuid="a3f1c2d4-5b60-4a7e-8c91-0d2e3f4a5b6c", clique=7)


def test_fabric_of_one_host_has_no_cluster() -> None:
    assert fabric_of(2).fabric == Fabric(state="in_progress")
    assert fabric_of(1).fabric == Fabric(state="not_started")


@pytest.mark.parametrize("state", [0, 9])
def test_no_fabric(state: int) -> None:
    sample = fabric_of(state)
    assert (sample.fabric, sample.failed) == (None, ())


def test_fabric_that_breaks_fails_by_name() -> None:
    sample = read(FakeNvml(gpu(nvmlDeviceGetGpuFabricInfoV=Status(17))), Group.STATE)
    assert (sample.fabric, sample.failed) == (None, ("fabric",))


def test_firmware() -> None:
    card = gpu(
        nvmlDeviceGetVbiosVersion="96.00.74.00.01",
        nvmlDeviceGetInforomImageVersion="G520.0200.00.05",
        nvmlDeviceGetGspFirmwareVersion=b"580.95.05",
    )
    assert only(opened(FakeNvml(card))).firmware == {
        "vbios": "96.00.74.00.01",
        "inforom": "G520.0200.00.05",
        "gsp": "580.95.05",
    }


class Bytes:
    """Counters of PCIe, read again and again."""

    def __init__(self, kind: int = UINT) -> None:
        self.kind = kind
        self.card = gpu()
        self.provider = opened(FakeNvml(self.card), pcie_bytes=True)
        self.device = only(self.provider)

    def read(self, transmit: int, receive: int = 0) -> tuple[float | None, float | None]:
        self.card.fields |= {(197, 0): (self.kind, transmit), (198, 0): (self.kind, receive)}
        sample = self.provider.read(self.device, STATE)
        return sample.pcie_transmit_bytes, sample.pcie_receive_bytes


def test_bytes_over_pcie_are_counted_from_the_first_read_over_wraps() -> None:
    counters = Bytes()
    assert counters.read(4_294_967_000, 5) == (0.0, 0.0)
    assert counters.read(4_294_967_200, 5) == (200.0, 0.0)
    assert counters.read(100, 9) == (396.0, 4.0)
    assert counters.read(100, 9) == (396.0, 4.0)


def test_wide_counter_that_falls_began_anew() -> None:
    counters = Bytes(ULL)
    counters.read(5_000_000_000)
    assert counters.read(5_000_000_100)[0] == 100.0
    assert counters.read(30)[0] == 130.0


def test_after_a_loss_the_counters_go_on_from_where_they_were() -> None:
    counters = Bytes()
    counters.read(1_000)
    assert counters.read(1_500)[0] == 500.0
    counters.card.answers["nvmlDeviceGetTemperatureV"] = Status(15)
    counters.card.fields = {}
    assert counters.provider.read(counters.device, STATE).lost
    del counters.card.answers["nvmlDeviceGetTemperatureV"]
    assert counters.read(20)[0] == 500.0
    assert counters.read(25)[0] == 505.0


def test_bytes_over_pcie_are_not_read_unasked() -> None:
    card = _with({(197, 0): (UINT, 5), (198, 0): (UINT, 6)})
    sample = read(FakeNvml(card), *all_groups())
    assert (sample.pcie_transmit_bytes, sample.pcie_receive_bytes) == (None, None)
