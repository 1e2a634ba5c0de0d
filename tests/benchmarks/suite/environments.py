"""Environments of Python with certain packages and no others, as who installs an exporter has them."""

import functools
import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.native.plan import cache_directory

ROOT = Path(__file__).parents[3]


class MissingError(Exception):
    """Its text says what is missing and how it is installed."""


class Runtime(NamedTuple):
    python: str
    environment: dict[str, str]


def made(name: str, requirements: Sequence[str]) -> Path:
    """Return the folder of commands of an environment, which is made where it is missing. Raises MissingError."""
    key = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:12]
    folder = cache_directory(name) / key
    done = folder / "complete"
    if not done.exists():
        install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements]
        for step in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
            if subprocess.run(step, capture_output=True, timeout=300, check=False).returncode:
                raise MissingError(f"{' '.join(requirements)}: missing; install with: {' '.join(install)}")
        done.touch()
    return folder / "bin"


@functools.cache
def runtime() -> Runtime:
    """Return the interpreter, and what to add to its environment, that the daemon runs under where it is installed.

    It has what pyproject.toml asks for, and no more: msgspec imports typing_extensions where it is there, 1.3 MiB of
    each process. And its bytecode is ready, as an installation leaves it. Raises MissingError.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = str(made("runtime", project["dependencies"]) / "python")
    subprocess.run([python, "-m", "compileall", "-q", str(ROOT / "exporter")], timeout=120, check=True)
    return Runtime(python, {"PYTHONPATH": str(ROOT)})
