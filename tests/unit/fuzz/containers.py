"""How large is every container that some objects lead to? By the attributes through which it is reached."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import msgspec

_CONTAINERS = (dict, list, set, frozenset, tuple, deque, bytearray)
_LEAVES = (str, bytes, int, float, complex, type(None))


class Sizes(dict[str, int]):
    """The largest length found, by path such as `Fleet._cards{}._newest`, whose `{}` is any member of a container."""

    bytes = 0
    """Of everything that was reached, each object once."""


def sizes(**roots: object) -> Sizes:
    """Return the sizes of all containers that lie in objects of ours, which `roots` lead to."""
    found = Sizes()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = list(roots.items())
    while waiting:
        path, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        found.bytes += sys.getsizeof(thing)
        if isinstance(thing, _LEAVES):
            continue
        if isinstance(thing, _CONTAINERS):
            assert isinstance(thing, Sized)
            found[path] = max(found.get(path, 0), len(thing))
        waiting += _inside(path, thing)
    return found


def _inside(path: str, thing: Any) -> Iterator[tuple[str, object]]:
    if isinstance(thing, Mapping):
        for key, value in list(thing.items()):
            yield f"{path}[]", key
            yield f"{path}{{}}", value
    elif isinstance(thing, list | set | frozenset | tuple | deque):
        for value in list(thing):
            yield f"{path}{{}}", value
    elif type(thing).__module__.startswith(("exporter.", "tests.")) and not isinstance(thing, type):
        names = thing.__struct_fields__ if isinstance(thing, msgspec.Struct) else vars_of(thing)
        for name in names:
            # From the class on, so that one path stands for all instances.
            yield f"{type(thing).__name__}.{name}", getattr(thing, name)


def vars_of(thing: Any) -> list[str]:
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*getattr(thing, "__dict__", ()), *slots) if hasattr(thing, name)]
