"""Which children of one provider there are, by number and by what they are for. Pure."""

from collections.abc import Iterator

from exporter.supervision.child import Child, Role


class Children:
    """Those that have not ended, the abandoned ones among them, in the order of their start."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Child]:
        """Go over them as they are at the beginning."""
        return iter(tuple(self._children.values()))

    def add(self, role: Role, clock: float, allowed: float) -> Child:
        """Count a child that is about to be started; it may take `allowed` seconds to open its library."""
        self._numbers += 1
        child = self._children[self._numbers] = Child(self._numbers, role, clock, allowed)
        return child

    def get(self, number: int) -> Child | None:
        return self._children.get(number)

    def pop(self, number: int) -> Child | None:
        return self._children.pop(number, None)

    def live(self, role: Role) -> Child | None:
        """Return the one with this role that was not given up, though it may be about to end."""
        for child in self._children.values():  # asked at every report
            if child.role is role and not child.abandoned:
                return child
        return None

    def running(self, role: Role) -> Child | None:
        """Return the one with this role that is not about to end."""
        child = self.live(role)
        return None if child is None or child.ending else child

    @property
    def abandoned(self) -> int:
        return sum(child.abandoned for child in self)
