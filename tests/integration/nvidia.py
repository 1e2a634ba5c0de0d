"""The NVIDIA provider in a process of its own, over the real pynvml and the C stand-in, asked as a worker asks it."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from exporter.model import Device, Group, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.schema import (
    DeviceSpec,
    Load,
    Scenario,
    Values,
)

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1 << 20
SECONDS = 20.0
"""How long an answer may take on a busy machine."""

# Serves one command a line, as a worker would call the provider.
SCRIPT = """
import sys
from pathlib import Path
import msgspec
from exporter.model import Device, Group
from exporter.providers.nvidia import open_nvidia
from exporter.providers.protocol import OpenContext, ProviderError

provider = None
for line in sys.stdin:
    command = msgspec.json.decode(line)
    try:
        if command["do"] == "open":
            options = {"root": Path(command["root"]), "pcie_bytes": command.get("pcie_bytes", False)}
            opened = open_nvidia(OpenContext(between_calls=lambda: None, **options))
            provider, answer = opened.provider, opened.library_version
        elif command["do"] == "devices":
            answer = provider.devices()
        elif command["do"] == "read":
            device = msgspec.convert(command["device"], Device)
            answer = provider.read(device, frozenset(map(Group, command["groups"])))
        else:
            answer = provider.close()
        reply = {"answer": answer}
    except ProviderError as error:
        reply = {"error": str(error)}
    sys.stdout.write(msgspec.json.encode(reply).decode() + "\\n")
    sys.stdout.flush()
"""


class Down(Exception):  # noqa: N818 -- an answer, not an error of the test
    """The provider said ProviderError."""


class Session:
    """The provider in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self._answers = selectors.DefaultSelector()
        self._answers.register(process.stdout, selectors.EVENT_READ)

    def ask(self, do: str, *, seconds: float = SECONDS, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self.process.stdin.flush()
        if not self._answers.select(seconds):
            raise TimeoutError(do)
        reply = json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in reply:
            raise Down(reply["error"])
        return reply["answer"]

    def open(self, root: Path = Path("/")) -> str | None:
        version: str | None = self.ask("open", root=str(root))
        return version

    def devices(self) -> tuple[Device, ...]:
        return msgspec.convert(self.ask("devices"), tuple[Device, ...])

    def read(self, device: Device, *groups: Group, seconds: float = SECONDS) -> Sample:
        wanted = [str(group) for group in groups or Group]
        raw = self.ask("read", device=msgspec.to_builtins(device), groups=wanted, seconds=seconds)
        return msgspec.convert(raw, Sample)

    def end(self) -> None:
        self._answers.close()
        self.process.kill()
        self.process.communicate(timeout=SECONDS)


@contextmanager
def session(variables: dict[str, str], before: Sequence[str] = ()) -> Iterator[Session]:
    """Start the provider. `before`: a command that runs the one that follows it, such as one that takes rights away."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    process = subprocess.Popen(
        [*before, sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    served = Session(process)
    try:
        yield served
    finally:
        served.end()


Start = Callable[..., AbstractContextManager[Session]]


def machine(*devices: DeviceSpec, age: float = 1000.0, **more: Any) -> Machine:
    return Machine(Scenario(devices=devices, **more), time.monotonic() - age)


def constant(model: str, watts: float = 500.0, values: Any = None, **more: Any) -> DeviceSpec:
    return DeviceSpec(
        model=model, load=Load(pattern="constant", watts=watts), values=Values() if values is None else values, **more
    )


def first(served: Session) -> Sample:
    served.open()
    return served.read(served.devices()[0])
