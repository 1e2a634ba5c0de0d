import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.attribution.job_files import MOST_FILES, JobFiles
from exporter.attribution.source import Findings, Held, Question, SourceError
from exporter.model import Device, PartitionSample

PARTS = tuple(PartitionSample(partition=name) for name in ("gi1", "gi2ci0", "gi2ci1"))
NVIDIA = (
    Held(device=Device(vendor="nvidia", key="GPU-a", index=0)),
    Held(device=Device(vendor="nvidia", key="GPU-b", index=1), partitions=PARTS),
)
AMD = (
    Held(device=Device(vendor="amd", key="a0", index=0)),
    Held(
        device=Device(vendor="amd", key="a1", index=1),
        partitions=tuple(PartitionSample(partition=str(n)) for n in range(8)),
    ),
    Held(device=Device(vendor="amd", key="a2", index=9)),
)
JSON = """{
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "long",
    "SLURM_CLUSTER_NAME": "moon",
    "SLURM_JOB_GPUS": "0",
    "CUDA_VISIBLE_DEVICES": "0",
    "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"
}
"""


class Host:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 100.0
        self.source = JobFiles(str(directory), lambda: self.now)

    def write(self, name: str, content: str | bytes) -> None:
        (self.directory / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def look(self, *held: Held) -> Findings:
        return self.source.look(Question(held=held or NVIDIA))

    def grants(self, *held: Held) -> list[tuple[str, str, str | None]]:
        return [(grant.workload.key, grant.device, grant.partition) for grant in self.look(*held).grants]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_jobs_of_a_gpu(host: Host) -> None:
    host.write("0", "4711\n4712\n\n4711\n")
    host.write("1", "")
    assert host.grants() == [("slurm/4711", "GPU-a", None), ("slurm/4712", "GPU-a", None)]
    assert host.look().trouble == ""


def test_jobs_of_a_gpu_instance(host: Host) -> None:
    host.write("1.1", "4711")
    host.write("1.2", "4712")
    host.write("1.7", "4713")
    assert host.grants() == [
        ("slurm/4711", "GPU-b", "gi1"),
        ("slurm/4712", "GPU-b", "gi2ci0"),
        ("slurm/4712", "GPU-b", "gi2ci1"),
    ]
    assert host.look().unplaced_devices == 1


def test_job_in_the_format_of_amd(host: Host) -> None:
    host.write("0", JSON)
    (grant,) = host.look(*AMD).grants
    assert grant.device == "a0"
    assert (grant.workload.key, grant.workload.slurm_user, grant.workload.slurm_partition) == (
        "slurm/4711",
        "ada",
        "long",
    )


def test_number_of_a_partition_of_amd(host: Host) -> None:
    # AMD's tools count each partition as a GPU.
    host.write("3", JSON)
    host.write("9", JSON)
    assert host.grants(*AMD) == [("slurm/4711", "a1", "2"), ("slurm/4711", "a2", None)]


def test_formats_tell_the_vendors_apart(host: Host) -> None:
    host.write("0", JSON)
    host.write("1", "12\n")
    assert host.grants(*NVIDIA, *AMD) == [("slurm/4711", "a0", None), ("slurm/12", "GPU-b", None)]


def test_plain_file_where_all_gpus_are_amds(host: Host) -> None:
    host.write("0", "12\n")
    assert host.grants(*AMD) == [("slurm/12", "a0", None)]


def test_number_that_two_gpus_have_means_none(host: Host) -> None:
    host.write("0", "12\n")
    twins = [Held(device=Device(vendor="nvidia", key=key, index=0)) for key in ("GPU-a", "GPU-b")]
    assert host.grants(*twins) == []
    assert host.look(*twins).unplaced_devices == 1


def test_gpu_that_is_not_there(host: Host) -> None:
    host.write("7", "12\n")
    host.write("8", "")
    assert host.grants() == []
    assert host.look().unplaced_devices == 1


def test_json_without_a_job_is_an_idle_gpu(host: Host) -> None:
    host.write("0", '{"SLURM_JOB_ID": ""}')
    host.write("1", "{}")
    assert host.grants(*AMD) == []
    assert host.look(*AMD).trouble == ""


def test_other_names_are_ignored(host: Host) -> None:
    for name in ("README", "0.x", "gpu0", ".0", "0~"):
        host.write(name, "12\n")
    (host.directory / "-1").mkdir()
    assert host.look() == Findings()


def test_missing_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="missing: No such file or directory"):
        Host(tmp_path / "missing").look()


@pytest.mark.parametrize(
    "content",
    [
        b'{"SLURM_JOB_ID": "47',
        b"\xff\xfe\x00\x01binary",
        b"two words\n",
        b"../../etc/passwd\n",
        b"x" * 300,
        b'{"SLURM_JOB_ID": ["1"]}',
        b'{"SLURM_JOB_ID": "' + b"9" * 70_000 + b'"}',
        b"12\n" * 30_000,
    ],
)
def test_file_that_is_not_understood_is_said_and_hides_no_other(host: Host, content: bytes) -> None:
    host.write("0", content)
    host.write("1", "12\n")
    found = host.look()
    assert [grant.workload.key for grant in found.grants] == ["slurm/12"]
    assert found.trouble.startswith(f"{host.directory}/0 ")


def test_half_written_file_stands_for_what_it_said_before(host: Host) -> None:
    host.write("0", JSON)
    assert host.grants(*AMD) == [("slurm/4711", "a0", None)]
    host.write("0", JSON[:30])
    host.now += 20
    assert host.grants(*AMD) == [("slurm/4711", "a0", None)]
    host.now += 20
    with pytest.raises(SourceError, match="has neither job ids nor AMD's JSON"):
        host.look(*AMD)


def test_file_of_an_ended_job_is_gone_at_once(host: Host) -> None:
    host.write("0", "12\n")
    host.look()
    (host.directory / "0").unlink()
    assert host.look() == Findings()


def unfit(directory: Path) -> Iterator[tuple[str, str]]:
    os.mkfifo(directory / "2")
    yield "2", "is not a regular file"
    (directory / "secret").write_text("4711\n")
    (directory / "3").symlink_to("secret")
    yield "3", "is a symbolic link"
    (directory / "4").symlink_to("nowhere")
    yield "4", "is a symbolic link"
    (directory / "5").mkdir()
    yield "5", "is not a regular file"
    (directory / "6").symlink_to("/dev/zero")
    yield "6", "is a symbolic link"


def test_what_is_no_regular_file_is_never_waited_for(host: Host) -> None:
    for name, why in unfit(host.directory):
        with pytest.raises(SourceError, match=f"/{name} {why}"):
            host.look()
        path = host.directory / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_files_of_gpus_are_found_among_any_number_of_others(host: Host) -> None:
    for number in range(MOST_FILES + 100):
        host.write(f"slurm-{number}.out", "")
        host.write(str(number), "")
    for name in ("0", "1.1"):
        host.write(name, "12\n")
    assert host.grants() == [("slurm/12", "GPU-a", None), ("slurm/12", "GPU-b", "gi1")]
    assert host.look().trouble == f"{host.directory} has too many files: those of the first {MOST_FILES} GPUs are read"


def test_too_many_jobs_are_cut_off(host: Host) -> None:
    host.write("0", "\n".join(map(str, range(1000))))
    assert len(host.grants()) == 256


def test_permission_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to read as somebody else; run as root")
    host.write("0", "12\n")
    (host.directory / "0").chmod(0)
    host.directory.chmod(0o755)
    monkeypatch.chdir(host.directory)
    os.seteuid(65534)
    try:
        with pytest.raises(SourceError, match=r"^\./0: Permission denied$"):
            JobFiles(".").look(Question(held=NVIDIA))
    finally:
        os.seteuid(0)
