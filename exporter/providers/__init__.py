"""Where readings come from: the providers by name, in order of preference.

Vendor modules are imported by the openers only, so that the parent process never loads a vendor's package.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from exporter.providers.protocol import OpenContext, Opened, Opener


def _open_nvidia(context: OpenContext) -> Opened:
    from exporter.providers.nvidia import open_nvidia  # noqa: PLC0415 -- loads pynvml, in the worker only

    return open_nvidia(context)


def _open_amd(context: OpenContext) -> Opened:
    from exporter.providers.amd import open_amd  # noqa: PLC0415 -- loads amdsmi, in the worker only

    return open_amd(context)


def _open_drm(context: OpenContext) -> Opened:
    from exporter.providers.drm import open_drm  # noqa: PLC0415 -- as the others

    return open_drm(context)


def _count_drm(root: Path) -> int | None:
    from exporter.providers.drm.cards import count_cards  # noqa: PLC0415 -- as the others

    return count_cards(root)


def _open_simulated(context: OpenContext) -> Opened:
    from exporter.providers.simulated import open_simulated  # noqa: PLC0415 -- as the others

    return open_simulated(context)


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    open: Opener
    pci_vendor: int | None = None
    """Vendor id of the display controllers that it serves."""
    count: Callable[[Path], int | None] | None = None
    """Counts what the kernel shows of its devices, where that is not all controllers of one vendor; None: unknown."""
    by_name_only: bool = False
    """Never opened unless asked for by name."""


PROVIDERS: Mapping[str, ProviderEntry] = MappingProxyType(
    {
        "nvidia": ProviderEntry(open=_open_nvidia, pci_vendor=0x10DE),
        "amd": ProviderEntry(open=_open_amd, pci_vendor=0x1002),
        "drm": ProviderEntry(open=_open_drm, count=_count_drm),
        "simulated": ProviderEntry(open=_open_simulated, by_name_only=True),
    }
)
