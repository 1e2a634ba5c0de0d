"""Trees of files in the shape of /proc and of KFD's sysfs, as the kernel lays them out."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from exporter.providers.simulated.device import SimulatedDevice
from exporter.providers.simulated.machine import Machine

KERNEL_THREAD = 0x0020_0000


def process(
    root: Path, pid: int, comm: bytes = b"python3", *, started: int = 100, parent: int = 1, flags: int = 0
) -> Path:
    """Put a process into /proc and return its folder."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    middle = b" ".join(b"0" for _ in range(12))
    head = b"%d (%s) S %d 1 1 0 -1 %d " % (pid, comm, parent, flags)
    (folder / "stat").write_bytes(head + middle + b" %d 1000 200\n" % started)
    return folder


def kernel_threads(root: Path) -> None:
    """Put into /proc what shows that it is the host's."""
    process(root, 2, b"kthreadd", parent=0, flags=KERNEL_THREAD)


def own(directory: Path, pid_namespace: str) -> str:
    """Stand for /proc/self of a process in a namespace, and return its path."""
    (directory / "own/ns").mkdir(parents=True)
    (directory / "own/ns/pid").symlink_to(pid_namespace)
    return str(directory / "own")


def open_files(root: Path, pid: int, *files: tuple[str, str]) -> None:
    """Give a process descriptors: where each leads, and its fdinfo."""
    folder = root / "proc" / str(pid)
    for name in ("fd", "fdinfo"):
        (folder / name).mkdir(exist_ok=True)
    taken = len(list((folder / "fd").iterdir()))
    for number, (target, fdinfo) in enumerate(files, taken):
        (folder / "fd" / str(number)).symlink_to(target)
        (folder / "fdinfo" / str(number)).write_text(fdinfo)


def close_files(root: Path, pid: int) -> None:
    for name in ("fd", "fdinfo"):
        for path in (root / "proc" / str(pid) / name).iterdir():
            path.unlink()


def fdinfo(client: int | None = 1, address: str = "0000:05:00.0", **fields: Any) -> str:
    """Return the fdinfo of a render node of amdgpu; `drm_memory_vram="5 KiB"` adds such a line."""
    lines = {"pos": "0", "flags": "02100002", "drm-driver": "amdgpu", "drm-pdev": address}
    if client is not None:
        lines["drm-client-id"] = str(client)
    lines |= {name.replace("_", "-"): str(value) for name, value in fields.items()}
    return "".join(f"{name}:\t{value}\n" for name, value in lines.items())


def context(
    folder: Path, vram: Mapping[int, Any], queues: Iterable[int] = (), units: Mapping[int, Any] | None = None
) -> None:
    """Write what KFD shows of one context of a process: bytes by GPU, the GPU of each queue, compute units by GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pasid").write_text("32771\n")
    for gpu_id, size in vram.items():
        (folder / f"vram_{gpu_id}").write_text(f"{size}\n")
        (folder / f"sdma_{gpu_id}").write_text("0\n")
    (folder / "queues").mkdir(exist_ok=True)
    for number, gpu_id in enumerate(queues):
        queue = folder / "queues" / str(number)
        queue.mkdir()
        (queue / "gpuid").write_text(f"{gpu_id}\n")
        (queue / "size").write_text("8192\n")
        (queue / "type").write_text("0\n")
    for gpu_id, occupied in (units or {}).items():
        stats = folder / f"stats_{gpu_id}"
        stats.mkdir()
        (stats / "cu_occupancy").write_text(f"{occupied}\n")
        (stats / "evicted_ms").write_text("0\n")


def kfd_process(root: Path, name: object, *arguments: Any, **more: Any) -> Path:
    """Write what KFD shows of a process named by its pid; arguments are those of `context`."""
    folder = kfd(root) / "proc" / str(name)
    context(folder, *arguments, **more)
    return folder


def kfd(root: Path) -> Path:
    folder = root / "sys/class/kfd/kfd"
    (folder / "proc").mkdir(parents=True, exist_ok=True)
    return folder


def node(
    root: Path, number: int, gpu_id: int, *, bus: int = 5, partition: int = 0, units: int = 304, domain: int = 0
) -> None:
    """Write a node of KFD's topology; `gpu_id` 0 is a processor."""
    folder = kfd(root) / "topology/nodes" / str(number)
    folder.mkdir(parents=True)
    (folder / "gpu_id").write_text(f"{gpu_id}\n")
    location = bus << 8 | partition << 28
    simd = 4 if gpu_id else 0
    (folder / "properties").write_text(
        f"cpu_cores_count {0 if gpu_id else 96}\nsimd_count {units * simd}\nmem_banks_count 1\nsimd_per_cu {simd}\n"
        f"vendor_id 4098\nlocation_id {location if gpu_id else 0}\ndomain {domain}\nunique_id 12787592\n"
        f"drm_render_minor {128 + partition}\ngfx_target_version 90402\n"
    )


def write_kfd(root: Path, machine: Machine, t: float) -> None:
    """Write what KFD shows of a machine's AMD GPUs, their partitions and processes, `t` seconds after its epoch."""
    amd = [device for device in machine.devices if device.vendor == "amd"]
    ids = {device.key: _gpu_ids(device, t) for device in amd}
    node(root, 0, 0)
    number = 0
    for device in amd:
        for partition, gpu_id in enumerate(ids[device.key]):
            number += 1
            pci = {name: int(device.numbers[f"pci_{name}"]) for name in ("bus", "domain")}
            units = int(device.numbers["compute_units"]) // len(ids[device.key])
            node(root, number, gpu_id, partition=partition, units=units, **pci)
    every = dict.fromkeys((gpu_id for found in ids.values() for gpu_id in found), 0)
    vram: dict[int, dict[int, int]] = {}
    queues: dict[int, list[int]] = {}
    units: dict[int, dict[int, int]] = {}
    for device in amd:
        load = device.signal("utilization_ratio", t) or 0.0
        for row in device.rows_at("process", t):
            pid, gpu_id = int(row.numbers["pid"]), ids[device.key][int(row.numbers.get("partition_id", 0))]
            vram.setdefault(pid, dict(every))[gpu_id] += int(row.numbers.get("memory_used_bytes", 0))
            if row.numbers.get("queues"):
                queues.setdefault(pid, []).extend([gpu_id] * int(row.numbers["queues"]))
                share = row.numbers.get("share", 0.0) * load * device.numbers["compute_units"]
                units.setdefault(pid, {})[gpu_id] = round(share)
    for pid, sizes in vram.items():
        kfd_process(root, pid, sizes, queues=queues.get(pid, ()), units=units.get(pid, {}))


def _gpu_ids(device: SimulatedDevice, t: float) -> list[int]:
    parts = [int(row.numbers["kfd_gpu_id"]) for row in device.rows_at("partition", t)]
    return parts or [int(device.numbers["kfd_gpu_id"])]
