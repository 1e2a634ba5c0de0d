"""Links between GPUs on the page: together by default, one by one where that is asked for."""

import msgspec

from exporter.exposition import Format, Renderer
from exporter.model import DeviceSnapshot, LinkSample, LinkTotal
from tests.unit.exposition.worlds import device, world

UP = LinkSample(
    kind="nvlink", link="0", up=True, receive_bytes=50.0, transmit_bytes=70.0, errors={"crc": 1.0, "replay": 0.0}
)
DOWN = LinkSample(kind="nvlink", link="1", up=False, receive_bytes=5.0)
UNKNOWN = LinkSample(kind="nvlink", link="2")
TOTAL = LinkTotal(kind="nvlink", receive_bytes=9.0, transmit_bytes=7.0, errors={"crc": 1.0, "replay": 0.0})
BOTH_WAYS = {
    'gpu_interconnect_links{gpu="nvidia0",kind="nvlink",state="down",uuid="GPU-0"}': "1.0",
    'gpu_interconnect_links{gpu="nvidia0",kind="nvlink",state="up",uuid="GPU-0"}': "1.0",
}


def shown(of: DeviceSnapshot, *, each_link: bool = False) -> dict[str, str]:
    """Return the series of links with their values."""
    page = Renderer(each_link=each_link).page(world(of), Format.TEXT_0_0_4).decode()
    lines = [line.rpartition(" ") for line in page.splitlines() if line.startswith("gpu_interconnect_")]
    return {series: value for series, _, value in lines}


def connected(*links: LinkSample, totals: tuple[LinkTotal, ...] = ()) -> DeviceSnapshot:
    return msgspec.structs.replace(device(links=links), link_totals=totals)


def test_links_of_a_kind_stand_together_without_a_label_for_each() -> None:
    assert shown(connected(UP, DOWN, UNKNOWN, totals=(TOTAL,))) == {
        **BOTH_WAYS,
        'gpu_interconnect_receive_bytes_total{gpu="nvidia0",kind="nvlink",uuid="GPU-0"}': "9.0",
        'gpu_interconnect_transmit_bytes_total{gpu="nvidia0",kind="nvlink",uuid="GPU-0"}': "7.0",
        'gpu_interconnect_errors_total{error="crc",gpu="nvidia0",kind="nvlink",uuid="GPU-0"}': "1.0",
        'gpu_interconnect_errors_total{error="replay",gpu="nvidia0",kind="nvlink",uuid="GPU-0"}': "0.0",
    }


def test_links_one_by_one_have_the_counters_of_the_driver_and_their_state() -> None:
    assert shown(connected(UP, DOWN, UNKNOWN, totals=(TOTAL,)), each_link=True) == {
        **BOTH_WAYS,
        'gpu_interconnect_link_up{gpu="nvidia0",kind="nvlink",link="0",uuid="GPU-0"}': "1.0",
        'gpu_interconnect_link_up{gpu="nvidia0",kind="nvlink",link="1",uuid="GPU-0"}': "0.0",
        'gpu_interconnect_receive_bytes_total{gpu="nvidia0",kind="nvlink",link="0",uuid="GPU-0"}': "50.0",
        'gpu_interconnect_receive_bytes_total{gpu="nvidia0",kind="nvlink",link="1",uuid="GPU-0"}': "5.0",
        'gpu_interconnect_transmit_bytes_total{gpu="nvidia0",kind="nvlink",link="0",uuid="GPU-0"}': "70.0",
        'gpu_interconnect_errors_total{error="crc",gpu="nvidia0",kind="nvlink",link="0",uuid="GPU-0"}': "1.0",
        'gpu_interconnect_errors_total{error="replay",gpu="nvidia0",kind="nvlink",link="0",uuid="GPU-0"}': "0.0",
    }


def test_links_whose_state_is_not_told_are_not_counted_as_down() -> None:
    assert shown(connected(UNKNOWN)) == {}
    all_up = shown(connected(UP))
    assert [value for series, value in all_up.items() if 'state="down"' in series] == ["0.0"]


def test_each_kind_has_its_own_numbers() -> None:
    mixed = connected(UP, msgspec.structs.replace(DOWN, kind="xgmi"), totals=(TOTAL, LinkTotal(kind="xgmi")))
    states = {series: value for series, value in shown(mixed).items() if series.startswith("gpu_interconnect_links")}
    assert states == {
        'gpu_interconnect_links{gpu="nvidia0",kind="nvlink",state="down",uuid="GPU-0"}': "0.0",
        'gpu_interconnect_links{gpu="nvidia0",kind="nvlink",state="up",uuid="GPU-0"}': "1.0",
        'gpu_interconnect_links{gpu="nvidia0",kind="xgmi",state="down",uuid="GPU-0"}': "1.0",
        'gpu_interconnect_links{gpu="nvidia0",kind="xgmi",state="up",uuid="GPU-0"}': "0.0",
    }
