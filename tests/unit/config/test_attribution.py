from pathlib import Path

import pytest

from exporter.config import AttributionConfig, ConfigError, load_config


def problems(directory: Path, line: str) -> list[str]:
    path = directory / "config.yaml"
    path.write_text(f"attribution: {{{line}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.messages]


@pytest.mark.parametrize("key", ["kubelet_socket", "pod_logs", "job_files", "proc"])
def test_paths_are_of_the_host_and_so_absolute(tmp_path: Path, key: str) -> None:
    (problem,) = problems(tmp_path, f"{key}: run/here")
    assert problem.startswith(f"attribution.{key}: ")
    assert "expected an absolute path" in problem


def test_proc_of_the_host_is_named_so(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "proc: /host/processes")
    assert problem.startswith("attribution.proc: ")
    assert "expected a directory named proc, such as /host/proc" in problem


def test_root_below_which_the_proc_of_the_host_is() -> None:
    assert AttributionConfig().host is None
    assert AttributionConfig(proc="/proc/").host is None
    assert AttributionConfig(proc="/host/proc").host == "/host"
