"""Control groups as real hosts show them, one process each, and the /proc that they lie in.

Ids, names and numbers are made up; the shapes are those of the runtimes.
"""

from pathlib import Path
from typing import NamedTuple

from tests.kernel import KERNEL_THREAD

UID = "3f2a9c1e-7b44-4d0c-9a55-0c6f1e2d3b4a"
UNDERSCORED = UID.replace("-", "_")
OTHER_UID = "8d7c6b5a-1234-4e5f-8a9b-abcdefabcdef"
STATIC_UID = "5d0a1f7be3c94e21b6f8027d9c3e41aa"
ID = "4e1f" * 16
OTHER_ID = "9ab0" * 16
STATIC_ID = "77c3" * 16
SHORT = ID[:12]
USER = 1000
"""`ada` in the passwd file of the host."""
USERS = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000:Ada:/home/ada:/bin/bash\nbob:x:1001:1001::/home/bob:/bin/sh\n"


class Case(NamedTuple):
    runtime: str
    cgroup: str
    key: str | None
    """Of the workload of a process of this user, with the pods and containers of `pod_logs`; None: not known."""
    uid: int = 0


def _v1(path: str, *, systemd: str | None = None) -> str:
    """All lines of a v1 host; `systemd`: what the named hierarchy shows, if it is not the same."""
    controllers = (
        *("blkio", "cpuset", "hugetlb", "memory", "net_cls,net_prio", "freezer", "devices", "cpu,cpuacct", "pids"),
        *("perf_event", "rdma"),
    )
    lines = [f"{len(controllers) + 1 - n}:{name}:{path}" for n, name in enumerate(controllers)]
    return "\n".join([*lines, f"1:name=systemd:{path if systemd is None else systemd}"]) + "\n"


_BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"
_KIND_SYSTEMD = (
    f"/system.slice/docker-{OTHER_ID}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
    f"/kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice"
)
_ADA = "/user.slice/user-1000.slice/user@1000.service"
POD = "pod/team-a/trainer-0/main"

CASES = (
    # Kubernetes: each driver, runtime and version of control groups.
    Case("cgroupfs, burstable, v2", f"0::/kubepods/burstable/pod{UID}/{ID}\n", POD),
    Case("cgroupfs, guaranteed, v2", f"0::/kubepods/pod{UID}/{ID}\n", POD),
    Case("cgroupfs, best effort, v1", _v1(f"/kubepods/besteffort/pod{UID}/{ID}"), POD),
    Case("systemd, containerd, v2", f"0::{_BURSTABLE}/cri-containerd-{ID}.scope\n", POD),
    Case(
        "systemd, containerd, guaranteed",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
        POD,
    ),
    Case("systemd, containerd, v1", _v1(f"{_BURSTABLE}/cri-containerd-{ID}.scope"), POD),
    Case(
        "containerd, v1, colons",
        _v1(f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}"),
        POD,
    ),
    Case(
        "hybrid",
        _v1(f"/kubepods/burstable/pod{UID}/{ID}", systemd="/system.slice/containerd.service")
        + "0::/system.slice/containerd.service\n",
        POD,
    ),
    Case("systemd, CRI-O, v2", f"0::{_BURSTABLE}/crio-{ID}.scope\n", POD),
    Case("systemd, CRI-O with crun, v2", f"0::{_BURSTABLE}/crio-{ID}.scope/container\n", POD),
    Case("cgroupfs, CRI-O, v1", _v1(f"/kubepods/burstable/pod{UID}/crio-{ID}"), POD),
    Case("CRI-O, conmon", f"0::{_BURSTABLE}/crio-conmon-{ID}.scope\n", None),
    Case("systemd, docker, v1", _v1(f"{_BURSTABLE}/docker-{ID}.scope"), POD),
    Case("static pod", f"0::/kubepods/burstable/pod{STATIC_UID}/{STATIC_ID}\n", "pod/kube-system/watcher-node1/watch"),
    Case("pod of which nobody knows the name", f"0::/kubepods/burstable/pod{OTHER_UID}/{ID}\n", f"pod/{OTHER_UID}"),
    Case("pod, removed", f"0::{_BURSTABLE}/cri-containerd-{ID}.scope (deleted)\n", POD),
    Case("docker in a pod", f"0::{_BURSTABLE}/cri-containerd-{ID}.scope/docker/{OTHER_ID}\n", POD),
    Case(
        "systemd, kubelet in a slice of its own",
        f"0::/my\\x2dnode.slice/my\\x2dnode-kubepods.slice/my\\x2dnode-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
        POD,
    ),
    # kind: the node is a container, and the kubelet lives in it.
    Case("kind, cgroupfs, v1", _v1(f"/docker/{OTHER_ID}/kubelet/kubepods/burstable/pod{UID}/{ID}"), POD),
    Case("kind, systemd, v2", f"0::{_KIND_SYSTEMD}/cri-containerd-{ID}.scope\n", POD),
    Case("kind, the node itself", f"0::/docker/{ID}/system.slice/containerd.service\n", f"container/{SHORT}"),
    Case(
        "kind in a pod",
        f"0::/kubepods/burstable/pod{OTHER_UID}/{OTHER_ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}\n",
        POD,
    ),
    # The reader is in a control group namespace of its own.
    Case(
        "private namespace, systemd",
        f"0::/../../kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
        POD,
    ),
    Case("private namespace, cgroupfs", f"0::/../../../burstable/pod{UID}/{ID}\n", POD),
    Case("private namespace, a service", "0::/../../../../system.slice/sshd.service\n", "service/sshd.service"),
    # Containers without Kubernetes.
    Case("docker, cgroupfs", _v1(f"/docker/{ID}"), f"container/{SHORT}"),
    Case("docker, systemd", f"0::/system.slice/docker-{ID}.scope\n", f"container/{SHORT}"),
    Case("docker in docker", f"0::/docker/{ID}/docker/{OTHER_ID}\n", f"container/{SHORT}"),
    Case("nerdctl", f"0::/system.slice/nerdctl-{ID}.scope\n", f"container/{SHORT}"),
    Case("ECS", f"0::/ecs/0123456789abcdef0123456789abcdef/{ID}\n", f"container/{SHORT}"),
    Case("podman", f"0::/machine.slice/libpod-{ID}.scope\n", f"container/{SHORT}"),
    Case("podman with crun", f"0::/machine.slice/libpod-{ID}.scope/container\n", f"container/{SHORT}"),
    Case("podman, conmon", f"0::/machine.slice/libpod-conmon-{ID}.scope\n", None),
    Case("podman, cgroupfs", f"0::/libpod_parent/libpod-{ID}\n", f"container/{SHORT}"),
    Case(
        "podman pod",
        f"0::/machine.slice/machine-libpod_pod_{OTHER_ID}.slice/libpod-{ID}.scope/container\n",
        f"container/{SHORT}",
    ),
    Case("podman, quadlet", f"0::/system.slice/llm.service/libpod-payload-{ID}\n", f"container/{SHORT}"),
    Case("podman, rootless", f"0::{_ADA}/user.slice/libpod-{ID}.scope/container\n", f"container/ada/{SHORT}", 100999),
    Case(
        "podman, rootless quadlet",
        f"0::{_ADA}/app.slice/llm.service/libpod-payload-{ID}\n",
        f"container/ada/{SHORT}",
        USER,
    ),
    Case("docker, rootless", f"0::{_ADA}/user.slice/docker-{ID}.scope\n", f"container/ada/{SHORT}", 100000),
    # Virtual machines.
    Case(
        "libvirt",
        "0::/machine.slice/machine-qemu\\x2d3\\x2dinstance\\x2d0000002a.scope/libvirt/emulator\n",
        "service/machine-qemu\\x2d3\\x2dinstance\\x2d0000002a.scope",
    ),
    Case(
        "libvirt, cgroupfs",
        _v1("/machine/qemu-3-instance-0000002a.libvirt-qemu"),
        "service/qemu-3-instance-0000002a.libvirt-qemu",
    ),
    # Slurm.
    Case(
        "Slurm, v1",
        _v1("/slurm/uid_1000/job_4711/step_0/task_0", systemd="/system.slice/slurmd.service"),
        "slurm/4711",
        USER,
    ),
    Case("Slurm, v1, several daemons", _v1("/slurm_node7/uid_1000/job_4711/step_batch/task_0"), "slurm/4711", USER),
    Case("Slurm, v2, batch", "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n", "slurm/4711", USER),
    Case(
        "Slurm, v2, interactive",
        "0::/system.slice/slurmstepd.scope/job_4711/step_interactive/user/task_0\n",
        "slurm/4711",
        USER,
    ),
    Case(
        "Slurm, v2, named node",
        "0::/system.slice/node7_slurmstepd.scope/job_4711/step_3/user/task_2\n",
        "slurm/4711",
        USER,
    ),
    Case(
        "Slurm, v2, logged in by pam_slurm_adopt",
        "0::/system.slice/slurmstepd.scope/job_4711/step_extern/user/task_special\n",
        "slurm/4711",
        USER,
    ),
    Case("Slurm, v2, no job", "0::/system.slice/slurmstepd.scope/system\n", "service/slurmstepd.scope"),
    # systemd.
    Case("service", "0::/system.slice/ollama.service\n", "service/ollama.service"),
    Case("service, instance", "0::/system.slice/system-vllm.slice/vllm@70b.service\n", "service/vllm@70b.service"),
    Case("service, v1", _v1("/system.slice/ollama.service"), "service/ollama.service"),
    Case("service with groups of its own", "0::/system.slice/ollama.service/runner/3\n", "service/ollama.service"),
    Case(
        "service in a slice of the host's", "0::/gpu.slice/gpu-batch.slice/nightly.service\n", "service/nightly.service"
    ),
    Case("session", "0::/user.slice/user-1000.slice/session-3.scope\n", "user/ada", USER),
    Case("session, after sudo", "0::/user.slice/user-1000.slice/session-3.scope\n", "user/ada", 0),
    Case("user service", f"0::{_ADA}/app.slice/jupyter.service\n", "service/ada/jupyter.service", USER),
    Case("desktop", f"0::{_ADA}/app.slice/app-gnome-org.blender.Blender-4242.scope\n", "user/ada", USER),
    Case("desktop, service", f"0::{_ADA}/app.slice/app-org.gnome.Terminal.slice/vte-spawn-0.scope\n", "user/ada", USER),
    Case("desktop, shell", f"0::{_ADA}/session.slice/org.gnome.Shell@wayland.service\n", "user/ada", USER),
    Case("a user's manager", f"0::{_ADA}/init.scope\n", "user/ada", USER),
    Case("user without a name", "0::/user.slice/user-4242.slice/session-9.scope\n", "user/uid 4242", 4242),
    Case("no manager of groups", "0::/\n", "user/bob", 1001),
    Case("no manager of groups, v1", _v1("/") + "0::/\n", "user/ada", USER),
    # What nobody may pass for: names below a user's manager are the user's.
    Case("pod of a user's making", f"0::{_ADA}/user.slice/kubepods/pod{UID}/main\n", "user/ada", USER),
    Case("job of a user's making", f"0::{_ADA}/user.slice/slurm/uid_0/job_1/step_0\n", "user/ada", USER),
    Case(
        "container of a user's making", f"0::{_ADA}/user.slice/kubepods/pod{UID}/{ID}\n", f"container/ada/{SHORT}", USER
    ),
    # A kernel lets names hold any character but a slash and a line feed.
    *(
        Case(
            f"pod of a user's making, after U+{ord(end):04X}",
            f"0::{_ADA}/app.slice/a{end}0::/kubepods/pod{UID}/b\n",
            "user/ada",
            USER,
        )
        for end in "\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
    ),
    Case("user service, control characters", f"0::{_ADA}/app.slice/jupy\x01ter.service\n", "user/ada", USER),
    Case("service, control characters", "0::/system.slice/olla\x7fma.service\n", None),
    Case("libvirt, control characters", "0::/machine/qemu-3\x1b[0m.libvirt-qemu\n", None),
    Case(
        "service, one for each connection",
        "0::/system.slice/system-sshd.slice/sshd@12-192.0.2.1:22-192.0.2.7:50122.service\n",
        "service/sshd@12-192.0.2.1:22-192.0.2.7:50122.service",
    ),
    # Unknown shapes: counted, never guessed.
    Case("unknown", "0::/jobs/42\n", None, USER),
    Case("unknown in one hierarchy", "4:memory:/jobs/42\n1:name=systemd:/\n0::/\n", None, USER),
    Case("pod without a uid", f"0::/kubepods/burstable/podtrainer/{ID}\n", None),
    Case("a number that is no container's", f"0::/jobs/{ID}\n", None),
    Case("a slice alone", "0::/system.slice\n", None),
    Case("no lines", "", None),
)


def write_process(
    proc: Path,
    pid: int,
    cgroup: str | None,
    *,
    uid: int = 0,
    name: str = "python3",
    started: int = 5000,
    state: str = "S",
    parent: int = 1,
    flags: int = 0,
) -> None:
    """Write the files of a process as the kernel shows them; `cgroup` None: the kernel has none."""
    home = proc / str(pid)
    home.mkdir(parents=True, exist_ok=True)
    tail = " ".join([str(parent), *["0"] * 4, str(flags), *["0"] * 12, str(started), *["0"] * 30])
    (home / "stat").write_text(f"{pid} ({name}) {state} {tail}\n")
    (home / "comm").write_text(f"{name}\n")
    ids = "\t".join([str(uid)] * 4)
    (home / "status").write_text(
        f"Name:\t{name}\nUmask:\t0022\nState:\t{state} (sleeping)\nPid:\t{pid}\nPPid:\t1\nUid:\t{ids}\nGid:\t{ids}\n"
        f"NSpid:\t{pid}\nVmSize:\t  1024 kB\n"
    )
    if cgroup is not None:
        (home / "cgroup").write_text(cgroup)


def write_host(root: Path) -> Path:
    """Write what every host has, and return its proc."""
    proc = root / "proc"
    write_process(proc, 1, "0::/init.scope\n", name="systemd", started=1)
    write_process(proc, 2, "0::/\n", name="kthreadd", started=1, parent=0, flags=KERNEL_THREAD)
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text(USERS)
    return proc


def write_pod_logs(root: Path) -> Path:
    """Write /var/log/pods and /var/log/containers as the kubelet lays them out, and return the former."""
    logs = root / "var/log/pods"
    for name in (
        f"team-a_trainer-0_{UID}/main",
        f"team-a_trainer-0_{UID}/sidecar",
        f"kube-system_watcher-node1_{STATIC_UID}/watch",
        "not-a-pod",
    ):
        (logs / name).mkdir(parents=True)
    (logs / "lost+found").mkdir()
    containers = root / "var/log/containers"
    containers.mkdir(parents=True)
    (containers / f"trainer-0_team-a_main-{ID}.log").symlink_to(logs / f"team-a_trainer-0_{UID}/main/0.log")
    (containers / f"trainer-0_team-a_sidecar-{OTHER_ID}.log").symlink_to("/gone")
    return logs
