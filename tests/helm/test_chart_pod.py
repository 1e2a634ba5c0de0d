"""The pod of the chart really starts: its user may do what it must, and what it keeps is there for the next pod."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.helm.chart import NAMESPACE, Object, of_kind, render
from tests.helm.kubelet import Node, Pod
from tests.integration.daemon import Samples
from tests.integration.web_files import HASH, PASSWORD, Authority

pytestmark = pytest.mark.integration

DEVICE = {"model": "H100-SXM", "load": {"pattern": "constant", "watts": 500}}
SIMULATED: dict[str, Any] = {"simulated": {"enabled": True, "scenario": {"devices": [DEVICE]}}}
JOURNAL = f"gpu-exporter-pods/{NAMESPACE}.gpus-gpu-exporter"
URL = "http://127.0.0.1:10042/metrics"
NOTHING = "0000000000000000"


def scrape(made: Pod, wanted: str) -> Samples:
    """Return the page, once a series of that name is above 0."""

    def look() -> Samples | None:
        page = Samples(made.get(URL) or "")
        return page if any(value > 0 for _, value in page.all(wanted)) else None

    return made.until(look)


def test_it_starts_and_serves_and_the_next_pod_goes_on_also_as_another_user(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    live, state = node.place(f"/run/{JOURNAL}"), node.place(f"/var/lib/{JOURNAL}")
    with node.started(render(tmp_path, SIMULATED)) as made:
        made.until(lambda: made.probe("readinessProbe"))
        assert made.probe("startupProbe")
        assert made.probe("livenessProbe")
        before = scrape(made, "gpu_energy_joules_total")
        assert before.value("gpu_exporter_journal_up") == 1
        status = made.status()
        assert status["Uid"].split() == ["65532"] * 4
        assert (status["CapPrm"], status["CapBnd"], status["NoNewPrivs"]) == (NOTHING, NOTHING, "1")
        for place in ("", "/etc/gpu-exporter/config"):
            assert "Read-only" in made.inside(["touch", f"{place}/file"]).stderr
        assert made.process is not None
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(10) == 0
    assert (state / "stopped.journal").stat().st_uid == 65532

    # The kubelet is asked, and so the pod is root's; it has no capability to read what the other user has left.
    node.place("/var/lib/kubelet/pod-resources").mkdir(parents=True)
    attribution = {"kubelet": {"enabled": True}, "processes": "hostProc"}
    with node.started(render(tmp_path, {**SIMULATED, "attribution": attribution})) as made:
        made.until(lambda: made.probe("readinessProbe"))
        after = scrape(made, "gpu_exporter_attribution_up")
        assert after.value("gpu_exporter_journal_up") == 1
        assert after.value("gpu_energy_joules_total") >= before.value("gpu_energy_joules_total") > 0
        began = [page.value("gpu_energy_start_timestamp_seconds") for page in (before, after)]
        assert began[0] == began[1]
        assert after.value("gpu_exporter_attribution_up", source="proc") == 1
        # That it is missing is a failure where somebody has asked for it.
        assert after.value("gpu_exporter_attribution_up", source="kubelet") == 0
        assert (made.status()["Uid"].split()[0], made.status()["CapPrm"]) == ("0", NOTHING)
    assert live.stat().st_uid == 0


def test_it_starts_with_tls_and_login_and_probes_know_the_password(tmp_path: Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    certificate = {
        f"tls.{kind}": (authority.directory / f"server.{end}").read_bytes()
        for kind, end in (("crt", "pem"), ("key", "key"))
    }
    secrets = {"certificate": certificate, "probe": {"username": b"scraper\n", "password": PASSWORD}}
    values = {
        **SIMULATED,
        "tls": {"enabled": True, "existingSecret": "certificate"},
        "basicAuth": {"users": {"scraper": HASH}},
    }
    rendered = render(tmp_path, {**values, "probes": {"existingSecret": "probe"}})
    with Node(tmp_path / "node", secrets).started(rendered) as made:
        made.until(lambda: made.probe("readinessProbe"))
        assert made.probe("livenessProbe")
        key = "/etc/gpu-exporter/tls/tls.key"
        assert made.inside(["stat", "--dereference", "--format=%a %u %g", key]).stdout == "440 0 65532\n"
        assert made.get(URL.replace("http:", "https:")) is None
        # `helm test`, here of the port instead of the Service's name.
        command = command_of_test(rendered)
        assert made.inside(command).returncode == 0
        assert "the page has no cheese" in made.inside([*command, "--contains=cheese", "--retry-seconds=0"]).stderr
        strangers = [word for word in command if not word.startswith("--credentials")]
        assert "401" in made.inside([*strangers, "--retry-seconds=0"]).stderr
        # Without the password it can only tell that somebody asks for it.
        without = command_of_test(render(tmp_path, values))
        assert "--refusal-is-fine" in without
        assert made.inside(without).returncode == 0


def test_a_password_that_was_changed_in_one_place_alone_ends_no_pod(tmp_path: Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    files = {"tls.crt": "server.pem", "tls.key": "server.key"}
    server = {key: (authority.directory / name).read_bytes() for key, name in files.items()}
    tls = {"enabled": True, "existingSecret": "certificate"}
    values = {**SIMULATED, "tls": tls, "basicAuth": {"users": {"scraper": HASH}}, "probes": {"existingSecret": "probe"}}
    old = {"username": b"scraper", "password": b"the one before"}
    node = Node(tmp_path / "node", {"certificate": server, "probe": old})
    with node.started(render(tmp_path, values)) as made:
        made.until(lambda: made.probe("startupProbe"))
        assert made.probe("livenessProbe")
        assert "401" in made.inside(made.container["readinessProbe"]["exec"]["command"]).stderr
    torn = {**old, "tls.crt": b"half of a certifi", "tls.key": b""}
    node = Node(tmp_path / "torn", {"certificate": server, "probe": torn})
    with node.started(render(tmp_path, values)) as made:
        made.until(lambda: made.probe("startupProbe"))
        assert made.probe("livenessProbe")
        said = made.inside(made.container["readinessProbe"]["exec"]["command"])
        assert (said.returncode, "Traceback" in said.stderr) == (1, False)
        assert "/etc/gpu-exporter/probe" in said.stderr


def test_probes_without_a_certificate_see_whether_the_port_is_open(tmp_path: Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    authority.signed("scraper", "DNS:prometheus.example.org")
    files = {"ca.crt": "ca.pem", "tls.crt": "server.pem", "tls.key": "server.key"}
    server = {key: (authority.directory / name).read_bytes() for key, name in files.items()}
    client = {
        f"tls.{kind}": (authority.directory / f"scraper.{end}").read_bytes()
        for kind, end in (("crt", "pem"), ("key", "key"))
    }
    tls = {"enabled": True, "existingSecret": "certificate", "clientAuth": {"enabled": True}}
    with Node(tmp_path / "open", {"certificate": server}).started(render(tmp_path, {**SIMULATED, "tls": tls})) as made:
        made.until(lambda: made.probe("readinessProbe"))
        assert made.get(URL.replace("http:", "https:")) is None
        command = command_of_test(render(tmp_path, {**SIMULATED, "tls": tls}))
        assert made.inside(command).returncode == 0

    values = {**SIMULATED, "tls": tls, "probes": {"existingSecret": "probe"}}
    node = Node(tmp_path / "known", {"certificate": server, "probe": client})
    with node.started(render(tmp_path, values)) as made:
        made.until(lambda: made.probe("readinessProbe"))
        assert made.inside(command_of_test(render(tmp_path, values))).returncode == 0


def command_of_test(rendered: list[Object]) -> list[str]:
    (test,) = of_kind(rendered, "Pod")
    (container,) = test["spec"]["containers"]
    return [word.replace(f"gpus-gpu-exporter.{NAMESPACE}.svc", "127.0.0.1") for word in container["command"]]
