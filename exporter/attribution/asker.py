"""Keeps one source in a thread of its own, and tells at any time what it said last, without waiting for it."""

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from exporter.attribution.source import NOT_YET, NothingToAskError, Question, SourceError

PATIENCE_SECONDS = 1.0
"""An answer waits so long for a source; a source that once took longer is not waited for until it is quick again."""
SILENT_SECONDS = 60.0
"""What a source said is dropped when it has said nothing since for so long, although it was asked."""

_MOST_CHARACTERS = 300
"""Of a reason."""

_T = TypeVar("_T")


class Told(NamedTuple, Generic[_T]):
    found: _T | None
    """What it said last; None: nothing, or too long ago."""
    reason: str
    """Why it does not tell now, in words; empty when it does."""
    absent: bool = False
    """There is nothing to ask, and nobody expects it."""


class Asker(Generic[_T]):
    """One thread, for as long as the process lives: one that hangs in a call cannot be ended."""

    def __init__(
        self,
        name: str,
        look: Callable[[Question], _T],
        answered: Callable[[], None],
        *,
        pause: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`answered` is called from the thread after each look; `pause`: least seconds from one look to the next."""
        self.name = name
        self._look = look
        self._answered = answered
        self._pause = pause
        self._clock = clock
        self._changed = threading.Condition()
        self._question = Question()
        self._asked = self._begun = self._done = 0
        self._asked_at = -math.inf
        """When the oldest question was asked that is not answered."""
        self._began_at = -math.inf
        self._found: _T | None = None
        self._found_at = -math.inf
        self._reason = NOT_YET
        self._absent = False
        self._quick = True
        threading.Thread(target=self._run, name=f"asker {name}", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Let the source look for this, when it is done with what it does."""
        with self._changed:
            if self._done == self._asked:
                self._asked_at = self._clock()
            self._question = question
            self._asked += 1
            self._changed.notify()

    def worth_waiting(self) -> bool:
        """Tell whether an answer is worth waiting for: it is about to look for what was asked, and is quick."""
        with self._changed:
            now = self._clock()
            if self._done == self._asked or not self._quick or now - self._asked_at > PATIENCE_SECONDS:
                return False
            return self._begun > self._done or now - self._began_at >= self._pause

    def told(self) -> Told[_T]:
        with self._changed:
            now = self._clock()
            silent = now - self._asked_at if self._done < self._asked else 0.0
            reason = self._reason
            if silent > SILENT_SECONDS:
                reason = f"it has not answered for more than {SILENT_SECONDS:.0f} seconds"
            elif silent > PATIENCE_SECONDS:
                self._quick = False
            if reason and now - self._found_at > SILENT_SECONDS:
                self._found = None
            return Told(self._found, reason, self._absent and not reason)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._begun == self._asked:
                    self._changed.wait()
            # Questions that come meanwhile are taken together.
            time.sleep(max(0.0, self._began_at + self._pause - self._clock()))
            with self._changed:
                self._begun = self._asked
                question = self._question
                self._began_at = self._clock()
            found, reason, absent = self._try(question)
            with self._changed:
                self._done = self._begun
                self._asked_at = self._clock()
                self._reason, self._absent = reason, absent
                if not reason:
                    self._found, self._found_at = found, self._clock()
                self._quick = self._clock() - self._began_at <= PATIENCE_SECONDS
            self._answered()

    def _try(self, question: Question) -> tuple[_T | None, str, bool]:
        try:
            return self._look(question), "", False
        except NothingToAskError:
            return None, "", True
        except SourceError as error:
            return None, _cut(str(error)) or "it does not say why", False
        except Exception as error:  # noqa: BLE001 -- a source that breaks must not take the others with it
            return None, _cut(f"it broke: {type(error).__name__}: {error}"), False


def _cut(reason: str) -> str:
    return reason if len(reason) <= _MOST_CHARACTERS else f"{reason[:_MOST_CHARACTERS]}..."
