"""AMD GPUs, through AMD SMI (the amdsmi package and libamd_smi.so of ROCm 6.0 and later)."""

import os
import time

from exporter.providers.amd.library import open_library
from exporter.providers.amd.provider import AmdProvider
from exporter.providers.amd.versions import spoken
from exporter.providers.procfs import proc_of
from exporter.providers.protocol import OpenContext, Opened


def open_amd(context: OpenContext) -> Opened:
    """Open AMD SMI. Raises ProviderError with the reason, in words, when it cannot be used."""
    library = open_library(context.root, os.environ, context.wrap)
    proc = proc_of(context.root, context.host)
    return Opened(AmdProvider(library, context, proc, time.monotonic, time.time), spoken(library.version))
