"""What a provider is: the seam between a vendor's library and the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from exporter.model import Device, Groups, Sample


class ProviderError(Exception):
    """The library or driver is gone or unusable: the provider is closed and opened again later.

    Its text is the reason shown to the operator: one sentence, no address of a file that holds secrets.
    """


class Provider(Protocol):
    """Reads devices of one kind. Called from one thread; a call may be slow or never return."""

    def devices(self) -> tuple[Device, ...]:
        """Enumerate anew; cheap enough to repeat. Raises ProviderError."""

    def read(self, device: Device, groups: Groups) -> Sample:
        """Read only the groups asked for. Raises ProviderError when all devices are affected."""

    def close(self) -> None:
        """Release the library and every descriptor. Never raises."""


class OpenContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an opener may depend on."""

    between_calls: Callable[[], None]
    """To be called before each call into the vendor's library: the worker serves urgent requests there. It may call
    `read` of the same provider for the energy group before it returns, so a provider holds no half-made state."""
    root: Path = Path("/")
    """Where /proc, /sys and /opt are looked for."""
    host: Path | None = None
    """Below which /proc is where a container has the host's; None: it is below `root`."""
    pcie_bytes: bool = False
    """Whether the bytes that went over PCIe are to be read."""
    wrap: Callable[[Any], Any] = lambda module: module
    """Given the module of the vendor's library: what it returns is used in its place, such as a recorder of calls."""
    scenario: str | None = None
    """Path of a scenario file; only the simulated provider reads it."""


class Opened(NamedTuple):
    provider: Provider
    library_version: str | None


Opener = Callable[[OpenContext], Opened]
"""Raises ProviderError when there is no library, no driver, or an unusable one. No device is not an error."""
