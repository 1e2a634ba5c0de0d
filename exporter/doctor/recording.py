"""Writes down what a provider's library and the kernel answer, redacted, in a child that may hang or die of it.

The child is `python -m exporter.doctor.recording PROVIDER HOST PARENT`; its standard output is the capture as JSON.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporter.captures.record import Recorder
from exporter.config import Config
from exporter.parentage import die_with
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext, ProviderError
from exporter.supervision.schedule import EVERYTHING

APART_SECONDS = 1.0
"""Between the two moments of a capture: accumulators move, and can be compared with power."""
_SOURCE = "gpu-exporter doctor --json"


class RecordingError(Exception):
    """There is no capture; the text says why, in one line."""


def recorded(provider: str, config: Config) -> Mapping[str, Any]:
    """Return the capture of all devices of a provider as plain values. Raises RecordingError."""
    sampling = config.sampling
    command = [sys.executable, "-m", __name__, provider, config.attribution.host or "", str(os.getpid())]
    child = subprocess.Popen(  # noqa: S603 -- ourselves
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    seconds = sampling.open_deadline_seconds + 4 * sampling.deadline_seconds + APART_SECONDS
    try:
        written, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()  # and not waited for: one in an uninterruptible call would hold us too
        raise RecordingError(f"it was not recorded within {seconds:g} s") from None
    if child.returncode:
        raise RecordingError(f"the recording ended with status {child.returncode}")
    capture: Mapping[str, Any] = msgspec.json.decode(written)
    return capture


def main(name: str, host: str, parent: str) -> int:
    die_with(int(parent))
    # Vendors' libraries write to descriptor 1 as they like.
    out = os.dup(1)
    os.dup2(2, 1)
    recorder = Recorder()
    context = OpenContext(between_calls=lambda: None, wrap=recorder.wrap, host=Path(host) if host else None)
    try:
        provider, version = PROVIDERS[name].open(context)
        devices = provider.devices()
        begun = time.monotonic()
        for number in range(2):
            if number:
                time.sleep(APART_SECONDS)
            recorder.copier.devices([device.pci_address for device in devices if device.pci_address is not None])
            for device in devices:
                provider.read(device, EVERYTHING)
            recorder.moment(round(time.monotonic() - begun, 3))
    except ProviderError:
        return os.EX_UNAVAILABLE
    models = sorted({device.model or "unknown" for device in devices})
    capture = recorder.capture(model=", ".join(models) or "no device", source=_SOURCE, version=version or "")
    with os.fdopen(out, "wb") as file:
        file.write(msgspec.json.encode(capture))
    provider.close()
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
