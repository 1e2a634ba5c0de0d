"""Which path answers what, without any socket."""

import asyncio
import gzip as gzip_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.exposition import Format
from exporter.fleet import Fleet
from exporter.metrics import Block
from exporter.model import Device, DeviceSnapshot, GpuState, Sample, Snapshot, World
from exporter.supervision.watch import NO_DEVICES
from exporter.web import routes
from exporter.web.messages import Request, Response

NOW = 1_800_000_000.0


def device(state: GpuState = GpuState.OK, gpu: str = "nvidia0", model: str | None = "H100") -> DeviceSnapshot:
    identity = Device(vendor="nvidia", key=f"GPU-{gpu}", model=model)
    return DeviceSnapshot(
        gpu=gpu,
        provider="nvidia",
        device=identity,
        state=state,
        sample=Sample(device=identity),
        last_sample_timestamp=NOW - 2.5,
    )


def snapshot(
    name: str = "nvidia",
    *devices: DeviceSnapshot,
    up: bool = False,
    wanted: bool = False,
    reason: str = "",
    expected: int | None = None,
) -> Snapshot:
    return Snapshot(provider=name, up=up, wanted=wanted, reason=reason, devices=devices, devices_expected=expected)


def empty(*, expected: int | None, wanted: bool = False) -> Snapshot:
    """A provider whose library works and finds no device."""
    return Snapshot(
        provider="nvidia",
        up=False,
        wanted=wanted,
        reason=NO_DEVICES,
        library_version="13.0",
        devices_expected=expected,
    )


def world(*snapshots: Snapshot, released: bool = False) -> World:
    return World(snapshots=snapshots, versions={}, released=released)


NO_GPU = world(
    snapshot("nvidia", reason="libnvidia-ml.so.1 is not there"), snapshot("amd", reason="amdsmi is not installed")
)


async def echo(format_: Format, blocks: frozenset[Block] | None, gzip: bool) -> bytes:
    page = f"{format_.name} {sorted(map(str, blocks)) if blocks is not None else 'all'}\n".encode()
    return gzip_module.compress(page) if gzip else page


def ask(
    path: str,
    query: str = "",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    seen: World = NO_GPU,
    telemetry_path: str = "/metrics",
) -> Response:
    handler = routes.build(echo, lambda: seen, lambda: NOW, telemetry_path)
    return asyncio.run(handler(Request(method, path, query, headers or {})))


def header(response: Response, name: str) -> str | None:
    return dict(response.headers).get(name)


def test_the_page_comes_in_the_format_asked_for_and_says_so() -> None:
    response = ask("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.status == 200
    assert response.body == b"OPENMETRICS_1_0_0 all\n"
    assert header(response, "Content-Type") == Format.OPENMETRICS_1_0_0.content_type
    assert header(response, "Vary") == "Accept, Accept-Encoding"
    assert header(response, "Content-Encoding") is None


def test_the_page_is_compressed_for_those_who_take_it() -> None:
    response = ask("/metrics", headers={"accept-encoding": "gzip"})
    assert header(response, "Content-Encoding") == "gzip"
    assert header(response, "Content-Type") == Format.TEXT_0_0_4.content_type
    assert header(response, "Vary") == "Accept, Accept-Encoding"
    assert gzip_module.decompress(response.body) == b"TEXT_0_0_4 all\n"


def test_the_path_of_the_page_can_be_chosen_and_the_usual_one_is_then_not_there() -> None:
    assert ask("/gpu/metrics", telemetry_path="/gpu/metrics").body.startswith(b"TEXT")
    assert ask("/metrics", telemetry_path="/gpu/metrics").status == 404


def test_the_page_can_be_at_the_root() -> None:
    assert ask("/", telemetry_path="/").body.startswith(b"TEXT")


@pytest.mark.parametrize(
    ("query", "blocks"),
    [
        ("collect[]=energy", ["energy"]),
        ("collect%5B%5D=load&collect[]=energy&collect[]=energy", ["energy", "load"]),
        ("exclude[]=processes&exclude[]=exporter", ["device", "energy", "load", "partitions", "state", "workloads"]),
        ("&".join(f"exclude[]={block}" for block in Block), []),
        ("name[]=x&target=y", "all"),
        ("", "all"),
        ("&&=", "all"),
    ],
)
def test_blocks_are_selected_by_name(query: str, blocks: object) -> None:
    assert ask("/metrics", query).body == f"TEXT_0_0_4 {blocks}\n".encode()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("collect[]=energy&exclude[]=load", "exclude each other"),
        ("collect[]=&exclude[]=", "exclude each other"),
        ("collect[]=enregy", "'enregy'; there are device, energy, load, state, partitions, processes, workloads"),
        ("exclude[]=a&exclude[]=energy&exclude[]=b", "'a', 'b'; there are device"),
        ("collect[]=", "''"),
        ("collect[]=ENERGY", "'ENERGY'"),
        ("collect[]=%00%0D%0AX%FF", r"'\x00\r\nX\ufffd'"),
        ("&".join("a=1" for _ in range(100)), "more than 64 parameters"),
    ],
)
def test_a_query_that_cannot_be_served_is_refused_in_words(query: str, said: str) -> None:
    response = ask("/metrics", query)
    assert response.status == 400
    assert said in response.body.decode()
    assert response.body.count(b"\n") == 1


@given(
    st.text(max_size=60) | st.lists(st.text(max_size=9)).map(lambda names: "&".join(f"collect[]={n}" for n in names))
)
def test_any_query_gives_the_page_or_one_line_of_plain_words(query: str) -> None:
    response = ask("/metrics", query)
    assert response.status in {200, 400}
    assert response.body.isascii()
    assert response.body.count(b"\n") == 1
    assert len(response.body) < 1000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get"])
def test_other_methods_are_refused_with_those_that_there_are(method: str) -> None:
    response = ask("/metrics", method=method)
    assert response.status == 405
    assert header(response, "Allow") == "GET, HEAD"


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/METRICS", "//metrics", "/-/", "/favicon.ico", "", "*"])
def test_elsewhere_there_is_nothing(path: str) -> None:
    assert ask(path).status == 404


def test_a_percent_encoded_path_is_the_same_path() -> None:
    assert ask("/%6Detrics").status == 200


def test_a_head_request_gets_the_headers_of_the_page() -> None:
    get, head = ask("/metrics"), ask("/metrics", method="HEAD")
    assert (head.status, head.headers) == (get.status, get.headers)
    assert len(head.body) == len(get.body)  # the server counts it and leaves it off


@pytest.mark.parametrize("seen", [NO_GPU, world(snapshot(wanted=True, reason="the driver is gone"))])
def test_the_process_is_healthy_whatever_the_devices_do(seen: World) -> None:
    assert ask("/-/healthy", seen=seen).status == 200


@pytest.mark.parametrize(
    "seen",
    [
        world(snapshot("nvidia", device(), up=True)),
        world(snapshot("nvidia", device(GpuState.HUNG), device(gpu="nvidia1"), up=True, wanted=True)),
        world(snapshot("nvidia", device(GpuState.ASLEEP), up=True)),
        world(snapshot("amd", wanted=True, reason="no driver"), snapshot("nvidia", device(), up=True)),
    ],
)
def test_it_is_ready_when_one_device_delivers(seen: World) -> None:
    assert ask("/-/ready", seen=seen).status == 200


@pytest.mark.parametrize("seen", [NO_GPU, world(empty(expected=0))])
def test_it_is_ready_when_the_host_is_known_to_have_no_gpu(seen: World) -> None:
    assert ask("/-/ready", seen=seen).status == 200


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (world(snapshot("nvidia")), "nvidia: not open yet"),
        (world(snapshot("nvidia", reason="no library"), snapshot("amd")), "amd: not open yet"),
        (world(snapshot("nvidia", wanted=True, reason="driver lost")), "nvidia: driver lost"),
        (world(snapshot("nvidia", device(), up=False, wanted=True, reason="hung")), "nvidia: hung"),
        (world(empty(expected=8)), "nvidia: no device was found"),
        (world(empty(expected=None)), "nvidia: no device was found"),
        (world(empty(expected=0, wanted=True)), "nvidia: no device was found"),
        (
            world(snapshot("nvidia", device(GpuState.STALE), device(GpuState.LOST), up=True)),
            "nvidia: no device delivers readings (lost, stale)",
        ),
        (
            world(snapshot("nvidia", device(GpuState.RELEASED), up=True), released=True),
            "the devices are released on request",
        ),
    ],
)
def test_it_is_not_ready_otherwise_and_says_why(seen: World, said: str) -> None:
    response = ask("/-/ready", seen=seen)
    assert response.status == 503
    assert response.body.decode() == said + "\n"


def test_it_is_not_ready_before_the_first_attempt_to_open_is_over() -> None:
    fleet = Fleet([("nvidia", False), ("amd", False)], SamplingConfig())
    assert ask("/-/ready", seen=fleet.world(0.0)).status == 503
    fleet.provider_status("nvidia", up=False, reason="no library", library_version=None)
    assert ask("/-/ready", seen=fleet.world(1.0)).status == 503
    fleet.provider_status("amd", up=False, reason="no package", library_version=None)
    assert ask("/-/ready", seen=fleet.world(2.0)).status == 200


def test_the_probes_are_the_paths_that_answer_as_probes() -> None:
    assert {path: ask(path).status for path in routes.PROBES} == {"/-/healthy": 200, "/-/ready": 200}
