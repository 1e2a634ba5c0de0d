"""Which path answers what, without any socket."""

import asyncio
import gzip as gzip_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Format
from exporter.metrics import Block
from exporter.model import Device, DeviceSnapshot, GpuState, Sample, Snapshot, World
from exporter.web import routes
from exporter.web.messages import Request, Response
from tests.unit.fleet.hosts import Host, card

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


def world(*snapshots: Snapshot) -> World:
    return World(snapshots=snapshots, versions={})


NO_GPU = world(
    snapshot("nvidia", reason="libnvidia-ml.so.1 is not there", expected=0),
    snapshot("amd", reason="amdsmi is not installed", expected=0),
)


async def echo(format_: Format, blocks: frozenset[Block] | None, gzip: bool, _client: str = "") -> bytes:
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


def ask_explained(path: str, host: Host, method: str = "GET") -> Response:
    """Ask for a page of a host with GPUs that can be explained."""
    handler = routes.build(
        echo, lambda: host.world, lambda: NOW, explain=lambda gpu: host.fleet.explain(gpu, host.now), host="node-7"
    )
    return asyncio.run(handler(Request(method, path)))


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
        (
            "exclude[]=processes&exclude[]=exporter",
            ["device", "energy", "load", "partitions", "profiling", "state", "workloads"],
        ),
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


def test_it_is_not_healthy_when_the_daemon_does_no_work() -> None:
    handler = routes.build(echo, lambda: NO_GPU, lambda: NOW, alive=lambda: False)
    response = asyncio.run(handler(Request("GET", "/-/healthy", "", {})))
    assert (response.status, response.body) == (503, b"the workers are not supervised\n")


def test_it_is_ready_as_readiness_says_and_says_why_not() -> None:
    assert ask("/-/ready", seen=NO_GPU).status == 200
    response = ask("/-/ready", seen=world(snapshot("nvidia", wanted=True, reason="driver lost")))
    assert response.status == 503
    assert response.body == b"not ready: no GPU delivers readings\nnvidia: driver lost; last reading: never\n"


def test_the_probes_are_the_paths_that_answer_as_probes() -> None:
    assert {path: ask(path).status for path in routes.PROBES} == {"/-/healthy": 200, "/-/ready": 200}


def test_the_status_page_comes_anew_by_itself_and_is_kept_by_nobody() -> None:
    response = ask("/")
    assert (response.status, header(response, "Refresh")) == (200, "5")
    assert header(response, "Cache-Control") == "no-store"
    assert header(response, "Content-Type") == "text/html; charset=utf-8"


def test_each_gpu_has_a_page_of_its_own_which_stays() -> None:
    host = Host(card(1))
    assert b"GPUs of node-7" in ask_explained("/", host).body
    response = ask_explained("/device/nvidia0", host)
    assert response.status == 200
    assert b"<h1>nvidia0 " in response.body
    assert header(response, "Refresh") is None
    assert (header(response, "Content-Security-Policy") or "").startswith("default-src 'none'; style-src 'sha256-")
    assert ask_explained("/device/nvidia%30", host).status == 200
    assert ask_explained("/device/nvidia0", host, "POST").status == 405


@pytest.mark.parametrize(
    "path",
    ["/device", "/device/", "/device/nvidia1", "/device/nvidia0/", "/device//nvidia0", "/devices/nvidia0", "/nvidia0"],
)
def test_there_is_no_page_of_a_gpu_that_there_is_not(path: str) -> None:
    assert ask_explained(path, Host(card(1))).status == 404
