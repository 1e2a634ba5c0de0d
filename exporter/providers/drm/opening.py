"""Puts the provider together: which readers it has, and what it reads with."""

import time
from collections.abc import Callable

from exporter.providers.drm.amdgpu import AmdgpuReader
from exporter.providers.drm.cards import find_cards
from exporter.providers.drm.files import Files, KernelFiles
from exporter.providers.drm.intel import IntelReader
from exporter.providers.drm.names import driver_version
from exporter.providers.drm.plain import PlainReader
from exporter.providers.drm.provider import DrmProvider
from exporter.providers.procfs import Proc, proc_of
from exporter.providers.protocol import OpenContext, Opened, ProviderError


def open_cards(
    context: OpenContext, *, proc: Proc | None = None, clock: Callable[[], float] = time.monotonic
) -> Opened:
    """Open the cards below `context.root`. `context.wrap` is given the `Files`. Raises ProviderError."""
    files: Files = context.wrap(KernelFiles())
    root = context.root
    if not find_cards(root, files):
        raise ProviderError("no device: the kernel's DRM drivers show no GPU of which they tell readings")
    provider = DrmProvider(
        root,
        files,
        (AmdgpuReader(root), IntelReader(root), PlainReader(root)),
        proc_of(root, context.host) if proc is None else proc,
        clock=clock,
        pause=context.between_calls,
    )
    # The drivers come with the kernel: its release is their version.
    return Opened(provider, driver_version(root, "drm", files))
