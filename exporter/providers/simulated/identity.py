"""Who a simulated device is: what its model and its place in the machine make it, the same at each start."""

import hashlib

from exporter.providers.simulated.catalogue import Model


def identity(model: Model, name: str, index: int, number: int) -> tuple[dict[str, str], dict[str, float]]:
    """Return texts and numbers of the device at `index` in the machine, which is the `number`-th of its vendor."""
    digest = hashlib.sha256(f"{name} {index}".encode()).hexdigest()
    texts = {
        "name": model.name,
        "architecture": model.architecture,
        "serial": f"1{int(digest[40:52], 16) % 10**12:012d}",
        "board_name": model.name,
        "memory_type": model.memory_type,
        # 0x11 is odd: the first 256 devices get 256 different buses, spread as on real boards.
        "pci_address": f"{index // 256:04x}:{(0x1B + 0x11 * index) % 256:02x}:00.0",
    }
    numbers = {
        "pci_device_id": model.pci_device_id,
        "pci_subsystem_id": model.pci_subsystem_id,
        "pci_revision": 0xA1 if model.vendor == "nvidia" else 0,
        "minor": number,
    }
    if model.vendor == "nvidia":
        texts["uuid"] = "GPU-" + dashed(digest)
    else:
        _amd(model, digest, number, texts, numbers)
    return {**texts, **model.texts}, {k: float(v) for k, v in {**numbers, **model.numbers}.items()}


def _amd(model: Model, digest: str, number: int, texts: dict[str, str], numbers: dict[str, int]) -> None:
    unique = digest[:16]
    texts["unique_id"] = unique
    # As the library derives it from unique_id and the PCI device id, up to ROCm 6.4.
    texts["uuid"] = f"{unique[:2]}ff{model.pci_device_id:04x}-0000-1000-80{unique[2:4]}-{unique[4:]}"
    render = 128 + number
    if model.compute_partitions:
        texts |= {"compute_partition": "SPX", "memory_partition": "NPS1"}
        render = 128 + 8 * number
    numbers |= {
        "minor": render,
        "render_minor": render,
        "card_minor": number + 1,
        "kfd_gpu_id": int(digest[32:36], 16) or 1,
        "kfd_node_id": number + 2,
        "hip_id": number,
    }


def pci_numbers(address: str) -> dict[str, float]:
    """Return the parts of dddd:bb:dd.f by the names of their properties."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    names = ("pci_domain", "pci_bus", "pci_device", "pci_function")
    return {name: float(int(part, 16)) for name, part in zip(names, (domain, bus, device, function), strict=True)}


def dashed(digest: str) -> str:
    """Return the first 32 hex digits in the grouping of a UUID."""
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
