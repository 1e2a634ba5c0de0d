"""Works through one job after the other in a thread of its own, so that a file system holds up nothing else."""

import asyncio
import queue
import threading
from collections.abc import Callable


class Writer:
    """At most one job is under way. The thread does not keep the process from ending: a write may hang for ever."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> asyncio.Future[None]:
        """Start a job; the future has its exception, if it raises one."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while True:
            job, future = self._jobs.get()
            failure: Exception | None = None
            try:
                job()
            except Exception as error:  # noqa: BLE001 -- handed to whoever waits
                failure = error
            try:
                self._loop.call_soon_threadsafe(_settle, future, failure)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _settle(future: asyncio.Future[None], failure: Exception | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
