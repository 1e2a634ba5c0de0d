"""How a module is imported without others that it would bring along, and that we seldom or never use."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

SELDOM = ("inspect", "ipaddress", "tokenize")
"""Of Python's own. asyncio wants inspect for decorated coroutines, urllib.parse ipaddress for a host in brackets,
and linecache tokenize for the source of a traceback: 1.1 of a daemon's 16 MiB."""

_giving_way = threading.Lock()


def postpone(names: tuple[str, ...] = SELDOM) -> None:
    """Have each of these modules loaded when something of it is used, instead of when it is imported as a whole."""
    for name in names:
        sys.modules.setdefault(name, _postponed(name))


@contextlib.contextmanager
def instead(name: str, module: ModuleType | None) -> Iterator[None]:
    """Within it, who imports the module `name` gets `module`, or for None the error that it is not installed.

    What is loaded already stays as it is, and afterwards an import gives the module that has the name.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = module  # type: ignore[assignment] # None is what makes an import fail, as Python documents
    try:
        yield
    finally:
        del sys.modules[name]


def _postponed(name: str) -> ModuleType:
    module = ModuleType(name)

    def attribute(wanted: str) -> Any:
        with _giving_way:  # or another thread takes away what this one is about to load
            if sys.modules.get(name) is module:
                del sys.modules[name]
        __import__(name)
        return getattr(sys.modules[name], wanted)

    module.__dict__["__getattr__"] = attribute  # as in a module that has such a function
    return module
