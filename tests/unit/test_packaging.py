"""Are the unit, the image and the demonstration in step with the code that they start?"""

import configparser
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from exporter.cli import main
from exporter.config import Config

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd/gpu-exporter.service"
DROP_INS = sorted((ROOT / "systemd/drop-ins").glob("*.conf"))
COMPOSE = ROOT / "config/compose"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def settings(path: Path) -> dict[str, list[str]]:
    """Return the values of each setting of the section Service, in their order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def accepted(*arguments: str, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether the command takes these options: a provider that does not exist is all that is wrong."""
    assert main(["serve", "--provider=none", *arguments]) == 2
    return capsys.readouterr().err.count("\n") == 1


def test_the_unit_hides_no_process_and_no_gpu() -> None:
    found = settings(UNIT)
    # Owners of the processes on the GPUs are read in /proc.
    assert {"ProtectProc", "ProcSubset", "PrivateUsers", "PrivateDevices", "SupplementaryGroups"} & set(found) == set()
    assert found["DevicePolicy"] == ["closed"]
    assert found["DeviceAllow"] == ["char-nvidia* rw", "char-drm rw"]


def test_the_unit_keeps_the_live_journal_over_a_stop_and_the_copy_over_a_boot() -> None:
    found = settings(UNIT)
    assert found["RuntimeDirectoryPreserve"] == ["yes"]
    assert found["RuntimeDirectory"] == found["StateDirectory"] == ["gpu-exporter"]


def test_the_unit_is_not_started_again_for_mistakes_in_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    found = settings(UNIT)
    assert found["Restart"] == ["on-failure"]
    code = main(["serve", "--provider=none"])
    assert found["RestartPreventExitStatus"] == [str(code)]
    assert capsys.readouterr().err


def test_options_that_the_files_of_the_unit_name_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    named = {
        path.name: re.findall(r"^#?(?:Environment=)?\w*ARGS=(-.*)$", path.read_text(), re.MULTILINE)
        for path in (*DROP_INS, ROOT / "systemd/gpu-exporter.env")
    }
    assert {name for name, lines in named.items() if lines} == {"gpu-exporter.env", "socket.conf", "tls.conf"}
    for line in (line for lines in named.values() for line in lines):
        # The file need not be there.
        assert accepted(*(word for word in shlex.split(line) if "--config.file" not in word), capsys=capsys), line


def test_options_of_the_configuration_that_drop_ins_speak_of_exist() -> None:
    known = {f"{name}.{key}" for name in Config.__struct_fields__ for key in _keys(getattr(Config(), name))}
    named = {
        name.removesuffix(": true")
        for path in DROP_INS
        for name in re.findall(r"`(\w+\.\w+(?:: true)?)`", path.read_text())
    }
    assert named
    assert named <= known


def _keys(section: Any) -> tuple[str, ...]:
    return getattr(section, "__struct_fields__", ())


def test_every_drop_in_says_what_it_costs_and_is_in_the_documentation() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert len(DROP_INS) == 4
    for path in DROP_INS:
        assert "# What it costs: " in path.read_text()
        assert f"`{path.name}`" in page


def test_the_socket_is_the_default_port() -> None:
    parser = configparser.ConfigParser(strict=False)
    parser.read(ROOT / "systemd/gpu-exporter.socket")
    assert parser["Socket"]["ListenStream"] == Config().web.listen_addresses[0].rpartition(":")[2]


def test_the_image_pins_what_the_project_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["kubernetes"]]
    for file, requirements in {
        "requirements.txt": wanted,
        "build-requirements.txt": project["build-system"]["requires"],
    }.items():
        text = (ROOT / "config/container" / file).read_text()
        pins = {name.lower(): Version(version) for name, version in PINNED.findall(text)}
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement
        # Each file of each release is known by its hash.
        entries = re.split(r"^(?=[a-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
        assert len(entries) == len(pins)
        assert all("--hash=sha256:" in entry for entry in entries)


def test_what_the_dockerfile_copies_is_sent_to_the_builder_and_nothing_else() -> None:
    lines = re.findall(r"^COPY (?!--from)(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {word for line in lines for word in line.split()[:-1]}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name.rpartition("/")[0] or name for name in copied} == sent
    assert all((ROOT / name).exists() for name in copied)


def test_every_stage_of_the_image_has_one_base_with_a_tag() -> None:
    bases = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for _, name in bases if name}
    outside = [base for base, _ in bases if base not in names]
    assert len(outside) == 1
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-\w+", outside[0])


def test_the_images_command_is_one_that_the_exporter_takes(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    words = yaml.safe_load(command)
    assert "--web.listen-address=:10042" in words
    assert accepted(*words, capsys=capsys)


def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def mounts(service: str) -> dict[str, str]:
    """Return what is mounted where in a service."""
    return {place: source for source, place, *_ in (v.split(":") for v in composed()["services"][service]["volumes"])}


def test_the_demonstration_mounts_what_is_there_and_serves_this_machine_alone() -> None:
    for name, service in composed()["services"].items():
        for source in mounts(name).values():
            assert (COMPOSE / source).resolve().exists() if source.startswith(".") else source in composed()["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]) if "image" in service else service["build"]
    assert (COMPOSE / composed()["services"]["exporter"]["build"]["context"] / "Dockerfile").exists()


def test_the_demonstrations_exporter_takes_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = dict(word.split("=", 1) for word in composed()["services"]["exporter"]["command"])
    inside = mounts("exporter")
    assert options["--journal.directory"] in inside
    options["--simulate"] = str(COMPOSE / inside[options["--simulate"]])
    assert main(["check-config", options["--simulate"]]) == 0
    assert accepted(*(f"{name}={value}" for name, value in options.items()), capsys=capsys)


def test_the_parts_of_the_demonstration_find_each_other() -> None:
    services = composed()["services"]
    prometheus = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (job,) = prometheus["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    assert target.split(":") == ["exporter", services["exporter"]["ports"][0].rpartition(":")[2]]
    rules = Path("/etc/prometheus") / Path(prometheus["rule_files"][0]).parent
    assert mounts("prometheus")[str(rules)] == "../prometheus"
    (source,) = yaml.safe_load((COMPOSE / "datasource.yaml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0].rpartition(':')[2]}"
    (provider,) = yaml.safe_load((COMPOSE / "dashboards.yaml").read_text())["providers"]
    assert mounts("grafana")[provider["options"]["path"]] == "../grafana"
