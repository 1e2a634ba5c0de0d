"""How long to wait before the next try. Pure: the source of jitter is an argument."""

from random import Random

_JITTER = 0.1


class Backoff:
    """Doubles from `first` to `longest` seconds, each time with a little jitter."""

    def __init__(self, first: float, longest: float, random: Random) -> None:
        self._first = first
        self._longest = longest
        self._random = random
        self._tries = 0

    def next(self) -> float:
        delay = min(self._longest, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return delay * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        self._tries = 0
