"""Does the unit do what it is for, in a machine that boots? Only the GPUs and the kubelet are stood in for."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Samples
from tests.integration.debian import boot, debian, needs, overlaid, run_in
from tests.integration.totals import goes_on, joules
from tests.kubelet.mock import Node, generate, serving
from tests.native.plan import build, write_plan

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("booted.py")
UNITS = "etc/systemd/system"
Record = dict[str, Any]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the installation adds to a Debian, as docs/operations.md has it."""
    needs("systemd-nspawn: systemd-container", "mount: mount", "openssl: openssl")
    directory = tmp_path_factory.mktemp("installed")
    with overlaid(directory, debian()) as root:
        source = root / "src"
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        for name in ("exporter", "systemd"):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        # As on systems that do not have the groups; what makes users at the first boot would make one of them.
        without(root, "video", "render")
        run_in(root, f"systemctl --quiet mask systemd-sysusers.service\ncd /src\n{installation()}")
    yield directory / "upper"
    shutil.rmtree(directory)


def installation() -> str:
    """Return the commands of docs/operations.md; there is no manager yet that they could talk to."""
    page = (ROOT / "docs/operations.md").read_text().split("## As a systemd service")[1]
    found = re.search(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found
    return f"export SYSTEMD_OFFLINE=1\n{found[1].replace(' --now', '')}"


def without(root: Path, *names: str) -> None:
    """Take users and groups away."""
    for name in ("passwd", "shadow", "group", "gshadow"):
        path = root / "etc" / name
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if line.partition(":")[0] not in names))


@pytest.fixture(scope="module")
def life(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A machine without the groups and without sysusers.d, which simulates GPUs."""
    directory = tmp_path_factory.mktemp("life")
    with overlaid(directory, installed, debian()) as root:
        without(root, "video", "render", "gpu-exporter")
        (root / "etc/default/gpu-exporter").write_text("ARGS=--provider=simulated --log.level=debug\n")
        return boot(root, directory / "out", SCRIPT, "life")


@pytest.fixture(scope="module")
def rights(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """A machine with sysusers.d, a GPU of NVIDIA, a kubelet, and files that only root can read."""
    directory = tmp_path_factory.mktemp("rights")
    standin, kubelet, proto = (directory / name for name in ("standin", "kubelet", "proto"))
    for path in (standin, kubelet, proto):
        path.mkdir()
    scenario = {"devices": [{"model": "H100-SXM", "load": {"pattern": "constant", "watts": 400}}]}
    machine = Machine(load_scenario(json.dumps(scenario)), time.monotonic())
    write_plan(standin / "plan", machine)
    (standin / "plan").chmod(0o644)
    shutil.copy(build("nvidia"), standin)
    kubelet.chmod(0o750)
    node = Node(generate(proto))
    node.add("train", node.container({"nvidia.com/gpu": (machine.devices[0].texts["uuid"],)}))
    with overlaid(directory, installed, debian()) as root, serving(node, kubelet / "kubelet.sock"):
        run_in(root, "/opt/gpu-exporter/bin/pip install --quiet grpcio")  # what the extra for Kubernetes brings
        secrets = root / "etc/gpu-exporter"
        secrets.mkdir()
        (secrets / "slurm.yaml").write_text("attribution: {slurm_environment: true, kubelet_socket: null}\n")
        shutil.copy(ROOT / "config/web-config/login.yml", secrets / "web.yml")
        key = ("-newkey", "rsa:2048", "-nodes", "-keyout", secrets / "server.key", "-out", secrets / "server.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-days", "2", "-subj", "/CN=localhost", *key], check=True, capture_output=True
        )
        for name in ("web.yml", "server.key", "server.pem"):
            (secrets / name).chmod(0o600)
        drop_in = root / UNITS / "gpu-exporter.service.d"
        drop_in.mkdir()
        (drop_in / "standin.conf").write_text(
            "[Service]\nEnvironment=LD_LIBRARY_PATH=/standin GPU_EXPORTER_PLAN=/standin/plan\n"
        )
        binds = (f"--bind-ro={standin}:/standin", f"--bind={kubelet}:/var/lib/kubelet/pod-resources")
        yield boot(root, directory / "out", SCRIPT, "rights", *binds)


def test_it_starts_without_the_groups_video_and_render(life: Record) -> None:
    assert life["groups"] == ""
    assert {name: life["started"][name] for name in ("Type", "NotifyAccess", "DynamicUser", "NRestarts")} == {
        "Type": "notify",
        "NotifyAccess": "main",
        "DynamicUser": "yes",
        "NRestarts": "0",
    }
    assert "Started gpu-exporter.service" in life["log"]
    for process in life["processes"].values():
        # The range that systemd takes dynamic users from.
        assert 61184 <= int(process["Uid"].split()[0]) <= 65519
        assert process["Groups"] == process["Gid"].split()[0]


def test_a_scrape_shows_the_gpus_and_that_the_journal_works(life: Record) -> None:
    page = Samples(life["page"])
    assert len(joules(life["page"])) == len(page.all("gpu_info")) > 1
    assert page.value("gpu_exporter_provider_up", provider="simulated") == 1
    assert page.value("gpu_exporter_journal_up") == 1
    count = len(page.all("gpu_info"))
    assert life["status"] == f"{count} of {count} GPUs deliver readings"


def test_neither_the_daemon_nor_its_children_have_rights(life: Record) -> None:
    # The daemon, the worker, and the one who asks whose the processes are.
    assert len(life["processes"]) == 3
    for process in life["processes"].values():
        assert {
            name: int(process[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
        } == dict.fromkeys(("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"), 0)
        assert process["NoNewPrivs"] == "1"
        assert process["Seccomp"] == "2"


def test_the_filters_let_everybody_work(life: Record) -> None:
    """A call that is filtered fails with EPERM, which something would say."""
    assert "Operation not permitted" not in life["log"]
    assert "level=error" not in life["log"]
    assert "Traceback" not in life["log"]
    for page in map(Samples, (life["page"], life["after_stop"])):
        assert page.value("gpu_exporter_worker_restarts_total", provider="simulated", cause="crash") == 0


def test_the_journal_is_its_own_and_outlives_a_stop(life: Record) -> None:
    live, stopped = "/run/private/gpu-exporter", "/var/lib/private/gpu-exporter"
    for found in (life["files"], life["files_stopped"]):
        assert (found[live][1], found[f"{live}/live.journal"][1]) == ("0o700", "0o600")
        assert all(owner != 0 for owner, _ in found.values())
    assert f"{stopped}/stopped.journal" in life["files_stopped"]
    assert life["files_stopped"][stopped][1] == "0o700"


def test_one_that_stands_still_is_replaced_and_its_totals_go_on(life: Record) -> None:
    assert "Watchdog timeout" in life["log"]
    assert int(life["watchdog"]["NRestarts"]) >= 1
    assert goes_on(life["before_watchdog"], life["after_watchdog"])


def test_a_reload_is_taken_by_the_same_process(life: Record) -> None:
    before, after, state = life["reloaded"]
    assert (life["reload"], after, state) == ("", before, "active")
    assert "reloaded" in life["log"]


def test_a_stop_is_quick_and_clean_and_the_next_start_goes_on(life: Record) -> None:
    assert life["stop_seconds"] < 5.0
    assert life["stopped"] == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert goes_on(life["before_stop"], life["after_stop"])


def test_it_is_closed_where_it_runs(life: Record, record_property: Callable[[str, str], None]) -> None:
    (score,) = re.findall(r"exposure level for gpu-exporter.service: ([0-9.]+)", life["security"])
    record_property("table", f"{life['version']}\n{life['security']}")
    assert float(score) <= 1.8
    assert life["verify"] == ""


def test_sysusers_makes_the_groups_and_the_exporter_is_in_them(rights: Record) -> None:
    groups = {
        name: (int(number), members)
        for name, _, number, members in (g.split(":") for g in rights["groups"].splitlines())
    }
    assert {name: members for name, (_, members) in groups.items()} == {
        "video": "gpu-exporter",
        "render": "gpu-exporter",
    }
    assert len(rights["processes"]) >= 2
    for process in rights["processes"].values():
        assert {number for number, _ in groups.values()} <= {int(number) for number in process["Groups"].split()}
        assert int(process["CapEff"], 16) == 0


def test_a_gpu_is_read_through_nvml(rights: Record) -> None:
    page = Samples(rights["page"])
    assert page.labels("gpu_info")["model"] == "NVIDIA H100 80GB HBM3"
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 1
    assert page.value("gpu_power_watts") == pytest.approx(400, rel=0.1)


def test_the_kubelet_answers_with_its_drop_in_and_not_without(rights: Record) -> None:
    reason = Samples(rights["kubelet_before"]).labels("gpu_exporter_attribution_info", source="kubelet")["reason"]
    assert "may not be opened" in reason
    page = Samples(rights["kubelet"])
    assert page.value("gpu_exporter_attribution_up", source="kubelet") == 1
    assert page.labels("gpu_workload_allocation_ratio")["workload"] == "pod/default/train/main"


def test_other_users_processes_are_read_with_their_drop_in_and_not_without(rights: Record) -> None:
    # Whose a process is can be read without it, or the workloads would have no owners.
    assert rights["looks_before"].startswith("sleep\n")
    assert "Permission denied" in rights["looks_before"]
    assert rights["looks"].startswith("sleep\n/dev/null\npos:")
    reason = Samples(rights["slurm_before"]).labels("gpu_exporter_attribution_info", source="slurm")["reason"]
    assert "CAP_SYS_PTRACE" in reason
    assert Samples(rights["slurm"]).labels("gpu_workload_allocation_ratio")["workload"] == "slurm/4711"


def test_a_key_that_only_root_can_read_is_used_with_its_drop_in(rights: Record) -> None:
    assert len(joules(rights["tls"])) == 1
    assert rights["without_login"] == ""
    names = {Path(path).name: mode for path, (_, mode) in rights["credentials"].items()}
    assert {"web.yml", "server.key", "server.pem"} <= set(names)
    assert names["server.key"] in ("0o400", "0o440")


def test_it_serves_on_the_socket_of_systemd_without_a_network_of_its_own(rights: Record) -> None:
    assert rights["socket_enabled"] == ""
    assert rights["socket_unit"] == {"ActiveState": "active", "Listen": "[::]:10042 (Stream)"}
    first, own = rights["namespaces"]
    assert first != own
    assert goes_on(rights["tls"], rights["socket"])
