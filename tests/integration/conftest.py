import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from exporter.providers.simulated.machine import Machine
from tests.integration.amd import Look, Seen, parse, run_script
from tests.integration.daemon import Daemon, running
from tests.integration.nvidia import Session, Start, session
from tests.integration.supervised import descendants
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan

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


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Where the plan of the stand-in for NVML lies."""
    return tmp_path / "plan"


@pytest.fixture
def start(plan: Path) -> Start:
    """Write a machine's plan, if one is given, and start a session with the NVIDIA provider over the stand-in."""

    def started(machine: Machine | None = None) -> AbstractContextManager[Session]:
        if machine is not None:
            write_plan(plan, machine)
        return session(standin_environment(plan))

    return started


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Return a function that runs the provider of one wheel over a machine in a process of its own."""

    def run(version: str, machine: Any, *, library: str | None = None, then: Any = None) -> Seen:
        environment = {**amdsmi_tree(version, tmp_path, library=library), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
        write_plan(tmp_path / "plan", machine)
        if then is not None:
            write_plan(tmp_path / "plan.next", then)
        return parse(run_script(tmp_path, environment, "read" if then is None else "read swap read"))

    return run


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """Fail where a worker outlives the test."""
    yield
    began = time.monotonic()
    while left := descendants():  # on a busy machine one that was killed may take a moment to be gone
        assert time.monotonic() - began < 1.0, left
        time.sleep(0.01)
