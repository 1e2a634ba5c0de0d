from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import Daemon, running

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons with the arguments of `tests.integration.daemon.running`; they are stopped after the test."""
    with ExitStack() as stack:
        count = 0

        def start(*arguments: str, **options: Any) -> Daemon:
            nonlocal count
            count += 1
            options.setdefault("log", tmp_path / f"daemon{count}.log")
            return stack.enter_context(running(*arguments, **options))

        yield start
