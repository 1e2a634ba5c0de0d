from pathlib import Path

import pytest

from exporter.attribution.slurm import SlurmEnvironment
from exporter.attribution.source import Findings, Held, Question
from exporter.model import Device, PartitionSample
from tests.unit.attribution.hosts import write_process

# The second by minor number is the first by index.
GPUS = (
    Held(device=Device(vendor="nvidia", key="GPU-a", index=0, minor=1)),
    Held(device=Device(vendor="nvidia", key="GPU-b", index=1, minor=0)),
    Held(
        device=Device(vendor="nvidia", key="GPU-c", index=2, minor=2),
        partitions=(PartitionSample(partition="gi1", uuid="MIG-1"), PartitionSample(partition="gi2", uuid="MIG-2")),
    ),
)


class Node:
    """A node of Slurm with processes that have an environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cgroups = root / "sys/fs/cgroup"
        self.source = SlurmEnvironment(str(root / "proc"), str(root))
        self.pids = 100

    def run(self, group: str, name: str = "python3", **variables: str) -> int:
        """Start a process in a control group, given below the mount of control groups."""
        self.pids += 1
        write_process(self.root / "proc", self.pids, None, name=name)
        environment = "".join(f"{key}={value}\0" for key, value in {"HOME": "/home/ada", **variables}.items())
        (self.root / f"proc/{self.pids}/environ").write_bytes(environment.encode())
        directory = self.cgroups / group
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "cgroup.procs").open("a") as procs:
            procs.write(f"{self.pids}\n")
        return self.pids

    def look(self, *held: Held) -> Findings:
        return self.source.look(Question(held=held or GPUS))

    def grants(self, *held: Held) -> list[tuple[str, str, str | None]]:
        return [(grant.workload.key, grant.device, grant.partition) for grant in self.look(*held).grants]


V2 = "system.slice/slurmstepd.scope/job_4711"
V1 = "memory/slurm/uid_1000/job_4711"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    "group",
    [
        f"{V2}/step_batch/user/task_0",
        "system.slice/node7_slurmstepd.scope/job_4711/step_0/user/task_1",
        "batch.slice/slurmstepd.scope/job_4711/step_batch/user/task_0",
        f"{V1}/step_batch/task_0",
        f"{V1}/step_0",
        "cpuset/slurm_node7/uid_1000/job_4711/step_0/task_0",
    ],
)
def test_gpus_of_a_job_by_minor_number(node: Node, group: str) -> None:
    node.run(
        group,
        SLURM_JOB_ID="4711",
        SLURM_JOB_GPUS="0,1",
        SLURM_JOB_USER="ada",
        SLURM_JOB_ACCOUNT="physics",
        SLURM_JOB_PARTITION="long",
    )
    found = node.look()
    assert [(grant.workload.key, grant.device) for grant in found.grants] == [
        ("slurm/4711", "GPU-b"),
        ("slurm/4711", "GPU-a"),
    ]
    workload = found.grants[0].workload
    assert (workload.slurm_user, workload.slurm_account, workload.slurm_partition) == ("ada", "physics", "long")
    assert found.trouble == ""


def test_variable_of_the_job_is_preferred(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_STEP_GPUS="0")
    node.run(f"{V2}/step_batch/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1", SLURM_STEP_GPUS="0")
    assert node.grants() == [("slurm/4711", "GPU-a", None)]


def test_steps_of_a_job_without_the_other_variable_add_up(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_STEP_GPUS="0")
    assert node.grants() == [("slurm/4711", "GPU-b", None)]
    node.run(f"{V2}/step_1/user/task_0", SLURM_JOB_ID="4711", SLURM_STEP_GPUS="1")
    assert node.grants() == [("slurm/4711", "GPU-b", None), ("slurm/4711", "GPU-a", None)]


def test_jobs_that_share_a_gpu_by_shards(node: Node) -> None:
    for job in ("1", "2"):
        node.run(
            f"system.slice/slurmstepd.scope/job_{job}/step_batch/user/task_0",
            SLURM_JOB_ID=job,
            SLURM_JOB_GPUS="0",
            SLURM_SHARDS_ON_NODE="2",
        )
    assert node.grants() == [("slurm/1", "GPU-b", None), ("slurm/2", "GPU-b", None)]


def test_job_with_mps(node: Node) -> None:
    node.run(
        f"{V2}/step_batch/user/task_0",
        SLURM_JOB_ID="4711",
        SLURM_JOB_GPUS="1",
        CUDA_VISIBLE_DEVICES="0",
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50",
    )
    assert node.grants() == [("slurm/4711", "GPU-a", None)]


def test_daemon_of_a_step_and_the_extern_step_are_left_out(node: Node) -> None:
    node.run(f"{V2}/step_0/slurm", name="slurmstepd", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0")
    node.run(f"{V1}/step_0", name="slurmstepd", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0")
    node.run(f"{V2}/step_extern/user/task_special", name="sleep", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0")
    assert node.look() == Findings()


def test_environment_of_another_job_says_nothing(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="99", SLURM_JOB_GPUS="0")
    assert node.look() == Findings()


def test_instances_have_no_numbers_but_uuids(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="2")
    assert node.look().unplaced_devices == 1
    other = "system.slice/slurmstepd.scope/job_5/step_0/user/task_0"
    node.run(other, SLURM_JOB_ID="5", SLURM_JOB_GPUS="3", CUDA_VISIBLE_DEVICES="MIG-2,GPU-a")
    assert node.grants() == [("slurm/5", "GPU-c", "gi2"), ("slurm/5", "GPU-a", None)]


@pytest.mark.parametrize(
    ("text", "keys"),
    [("0-1", ["GPU-b", "GPU-a"]), ("1", ["GPU-a"]), ("", []), ("none", []), ("7", []), ("0-9999", ["GPU-b", "GPU-a"])],
)
def test_lists(node: Node, text: str, keys: list[str]) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS=text)
    assert [device for _, device, _ in node.grants()] == keys


def test_gpus_of_amd_have_indices(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")
    amd = [Held(device=Device(vendor="amd", key=f"a{n}", index=n, minor=128 + n)) for n in range(2)]
    assert node.grants(*amd) == [("slurm/4711", "a1", None)]


def test_numbers_mean_nothing_where_two_vendors_have_them(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0")
    found = node.look(*GPUS, Held(device=Device(vendor="amd", key="a0", index=0)))
    assert (found.grants, found.unplaced_devices) == ((), 1)


def test_job_that_is_over_is_gone_at_once(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")
    assert node.grants()
    (node.cgroups / V2).rename(node.root / "removed")
    assert node.look() == Findings()


def test_job_is_asked_once(node: Node) -> None:
    pid = node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")
    assert node.grants()
    (node.root / f"proc/{pid}/environ").write_bytes(b"SLURM_JOB_ID=4711\0SLURM_JOB_GPUS=0\0")
    assert node.grants() == [("slurm/4711", "GPU-a", None)]


def test_words_of_a_user_are_checked(node: Node) -> None:
    node.run(f"{V2}/step_0/user/task_0", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1", SLURM_JOB_ACCOUNT='x"} 1\n')
    (grant,) = node.look().grants
    assert grant.workload.slurm_account == ""


def test_processes_of_another_pid_namespace_are_passed_over(node: Node) -> None:
    (node.cgroups / f"{V2}/step_0/user/task_0").mkdir(parents=True)
    (node.cgroups / f"{V2}/step_0/user/task_0/cgroup.procs").write_text("0\n0\n")
    assert node.look() == Findings()
