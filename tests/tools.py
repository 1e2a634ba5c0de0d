"""What a test does whose outside tool is missing."""

import os
from typing import NoReturn

import pytest


def unavailable(what: str, install: str) -> NoReturn:
    """End the test or module: skipped with the command that installs the tool, failed where CI is true."""
    message = f"{what} is missing; install it with: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message, allow_module_level=True)
