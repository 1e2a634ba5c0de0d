"""A process that works a GPU, for those who measure it: `python -m tests.hardware.load PCI_ADDRESS BYTES`.

Takes that much memory, says `held` on standard output, works from one line of standard input to the next, and ends
when standard input does. Multiplies matrices where torch is there; else it fills the memory again and again by the
driver's own interface, which draws less power.
"""

import ctypes
import select
import sys
import time
from collections.abc import Callable
from typing import Any

_SIZE = 8192
"""Of the matrices: 128 MiB each in half precision."""


class LoadError(Exception):
    """Nothing here can work this GPU."""


def by_torch(address: str, size: int) -> Callable[[], None]:
    """Return a function that works for a moment. Raises LoadError."""
    try:
        import torch  # noqa: PLC0415 -- there or not
    except ImportError as error:
        raise LoadError("torch is not installed") from error
    number = next((i for i in range(torch.cuda.device_count()) if _address(torch, i) == address[:-2]), None)
    if number is None:
        raise LoadError(f"torch does not see {address}")
    device = torch.device("cuda", number)
    held = torch.empty(size - 3 * 2 * _SIZE * _SIZE, dtype=torch.uint8, device=device)
    left = torch.randn(_SIZE, _SIZE, dtype=torch.float16, device=device)
    right, product = torch.randn_like(left), torch.empty_like(left)

    def work(_held: Any = held) -> None:
        for _ in range(8):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize(device)

    torch.cuda.synchronize(device)
    return work


def _address(torch: Any, number: int) -> str:
    properties = torch.cuda.get_device_properties(number)
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}"


def by_driver(address: str, size: int) -> Callable[[], None]:
    """Return a function that works for a moment. Raises LoadError."""
    for name, take in (("libcuda.so.1", _cuda), ("libamdhip64.so", _hip)):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return take(library, address.encode(), size)
    raise LoadError("neither libcuda.so.1 nor libamdhip64.so is there")


def _cuda(library: ctypes.CDLL, address: bytes, size: int) -> Callable[[], None]:
    def call(function: str, *arguments: Any) -> None:
        status = getattr(library, function)(*arguments)
        if status:
            raise LoadError(f"{function} answered {status}")

    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGetByPCIBusId", ctypes.byref(device), ctypes.c_char_p(address))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))

    def work() -> None:
        for value in range(8):
            call("cuMemsetD32_v2", pointer, ctypes.c_uint(value), ctypes.c_size_t(size // 4))
        call("cuCtxSynchronize")

    return work


def _hip(library: ctypes.CDLL, address: bytes, size: int) -> Callable[[], None]:
    def call(function: str, *arguments: Any) -> None:
        status = getattr(library, function)(*arguments)
        if status:
            raise LoadError(f"{function} answered {status}")

    device, pointer = ctypes.c_int(), ctypes.c_void_p()
    call("hipDeviceGetByPCIBusId", ctypes.byref(device), ctypes.c_char_p(address))
    call("hipSetDevice", device)
    call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))

    def work() -> None:
        for value in range(8):
            call("hipMemset", pointer, ctypes.c_int(value), ctypes.c_size_t(size))
        call("hipDeviceSynchronize")

    return work


def main(address: str, size: int) -> int:
    try:
        try:
            work = by_torch(address, size)
            kind = "torch"
        except LoadError:
            work = by_driver(address, size)
            kind = "driver"
    except LoadError as error:
        sys.stdout.write(f"no load: {error}\n")
        return 1
    sys.stdout.write(f"held {kind}\n")
    sys.stdout.flush()
    working = False
    while True:
        # Working, it looks for a word without waiting; else it waits for one.
        ready, _, _ = select.select([sys.stdin], [], [], 0 if working else None)
        if ready:
            if not sys.stdin.readline():
                return 0
            working = not working
        if working:
            work()
        else:
            time.sleep(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
