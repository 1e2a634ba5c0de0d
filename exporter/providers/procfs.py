"""What the kernel's /proc tells of a process that a vendor's library names."""

from pathlib import Path


def process_name(root: Path, pid: int) -> str:
    """Return the kernel's name of the process, or `pid N` when it has ended or is in another namespace."""
    try:
        raw = (root / "proc" / str(pid) / "comm").read_bytes()
    except OSError:
        raw = b""
    # The kernel cuts names at 15 bytes, in the middle of a character if need be.
    return raw.removesuffix(b"\n").decode("utf-8", "replace") or f"pid {pid}"
