"""Are marks read when the kernel tells of them, when somebody who is awake looks, and at the end?"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from exporter.measure.follow import Follower
from exporter.measure.marks import Marks


def followed(path: Path, during: Callable[[Follower, Marks], Awaitable[None]]) -> list[str]:
    """Return the names of the windows that were marked until the end."""

    async def run() -> list[str]:
        marks = Marks()
        follower = Follower(path, marks)
        try:
            await during(follower, marks)
        finally:
            follower.close()
        return names(marks)

    return asyncio.run(run())


def names(marks: Marks) -> list[str]:
    return [window.name for window in marks.windows(0.0, 1.0)[1:]]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_the_kernel_tells_of_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "marks"

    async def during(__: Follower, marks: Marks) -> None:
        append(path, "start a\n")
        for _ in range(3):  # turns of the event loop, which take no time
            await asyncio.sleep(0)
        assert names(marks) == ["a"]

    assert followed(path, during) == ["a"]


def test_a_look_takes_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "marks"

    async def during(follower: Follower, marks: Marks) -> None:
        append(path, "start a\nstart ")
        follower.read()
        assert names(marks) == ["a"]
        append(path, "b\n")
        follower.read()
        assert names(marks) == ["a", "b"]
        path.write_text("end b\n")
        follower.read()
        assert marks.windows(0.0, 1.0)[2].end is not None, "written anew instead of being appended to"

    assert followed(path, during) == ["a", "b"]


def test_the_last_of_it_is_taken_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "marks"

    async def during(_: Follower, __: Marks) -> None:
        append(path, "start a\n")

    assert followed(path, during) == ["a"]
