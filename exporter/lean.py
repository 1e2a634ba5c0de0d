"""How a module is imported without another one that it would bring along, and that we have no use for."""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType


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
