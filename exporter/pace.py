"""When do those who look at something now and then look? All at the same moments, so that the process wakes up once."""

import asyncio
import time


async def pause(seconds: float) -> None:
    """Sleep until CLOCK_MONOTONIC is the next multiple of so many seconds; never for longer than them."""
    await asyncio.sleep(seconds - time.monotonic() % seconds)
