"""Outside tools and processes of tests: what happens when one is missing, and how one is ended."""

import os
import subprocess
from typing import NoReturn

import pytest


def unavailable(what: str, install: str) -> NoReturn:
    """End the test or module: skipped with the command that installs the tool, failed where CI is true."""
    message = f"{what} is missing; install it with: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message, allow_module_level=True)


def end(process: "subprocess.Popen[bytes]", seconds: float = 10.0) -> None:
    """Ask the process to end, and kill it when it has not after so many seconds."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
