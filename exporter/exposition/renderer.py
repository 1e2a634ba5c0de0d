"""Which blocks are rendered for a scrape, and which are served from memory."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from exporter.exposition.compression import Beginning, deflated, member
from exporter.exposition.family import Family, Lines
from exporter.exposition.formats import Dialect, Format
from exporter.exposition.subjects import Table, tables
from exporter.metrics import PROCESS_LABELS, Block
from exporter.model import World

FRONT = tuple(block for block in Block if block is not Block.ENERGY)
"""Energy stands last on the page: it is read for each, and what stands before it can be joined and summed meanwhile."""


class _Rendered:
    """One version of one block: the lines of its families, and what has been made of them so far."""

    def __init__(self, version: int | None, families: list[tuple[Family[Any], Lines]], dropped: dict[str, int]) -> None:
        self.version = version
        self.dropped = dropped
        self._families = families
        self._plain: dict[Dialect, bytes] = {}
        self._deflated: dict[Dialect, bytes] = {}

    def plain(self, dialect: Dialect) -> bytes:
        page = self._plain.get(dialect)
        if page is None:
            # A family without series is not announced either.
            dated = dialect is Dialect.OPENMETRICS
            page = "".join(
                f.announcements[dialect] + (lines.openmetrics if dated else lines.plain)
                for f, lines in self._families
                if lines.plain
            ).encode()
            self._plain[dialect] = page
        return page

    def deflated(self, dialect: Dialect) -> bytes:
        stretch = self._deflated.get(dialect)
        if stretch is None:
            plain = self.plain(dialect)
            stretch = self._deflated[dialect] = deflated(plain) if plain else b""
        return stretch


class Renderer:
    """Renders pages and keeps what it rendered.

    `disable`: name patterns of the families to leave out. `created`: whether OpenMetrics says when counters began.
    `process_labels`: of series of processes, besides those of their device. `each_link`: links one by one.
    """

    def __init__(
        self,
        disable: Sequence[str] = (),
        *,
        created: bool = False,
        process_labels: Sequence[str] = PROCESS_LABELS,
        each_link: bool = False,
    ) -> None:
        self._families: dict[Block, list[tuple[Table[Any], list[Family[Any]]]]] = {block: [] for block in Block}
        for block, members in self._families.items():
            for table in tables(process_labels, each_link=each_link):
                families = [
                    Family(spec, table.labels, created=created)
                    for spec in table.specs
                    if spec.block is block and not any(fnmatchcase(spec.name, pattern) for pattern in disable)
                ]
                if families:
                    members.append((table, families))
        self._rendered: dict[Block, _Rendered] = {}
        self._beginnings: dict[Dialect, tuple[list[_Rendered], Beginning]] = {}
        """What comes before the energy on the newest compressed page, and of which blocks it is made."""
        self._ends = {dialect: (dialect.value, deflated(dialect.value)) for dialect in Dialect}

    @property
    def dropped(self) -> Mapping[str, int]:
        """Series left out of the blocks as they are in memory, by family; families that lost none are missing."""
        return {family: count for rendered in self._rendered.values() for family, count in rendered.dropped.items()}

    def page(
        self,
        world: World,
        format: Format,  # noqa: A002 -- the field's word, and callers may name it
        blocks: frozenset[Block] | None = None,
        *,
        gzip: bool = False,
    ) -> bytes:
        """Return the page of the blocks asked for (None: all), UTF-8, plain or as one gzip member.

        A block is rendered when its version in `world.versions` differs from the one in memory, or is missing.
        """
        dialect = format.dialect
        front = self._front(world, blocks)
        last = [self._block(world, Block.ENERGY)] if blocks is None or Block.ENERGY in blocks else []
        end, end_deflated = self._ends[dialect]
        if not gzip:
            return b"".join([*(block.plain(dialect) for block in (*front, *last)), end])
        return member(
            self._joined(front, dialect).followed_by(
                [*(block.plain(dialect) for block in last), end],
                [*(block.deflated(dialect) for block in last), end_deflated],
            )
        )

    def prepare(
        self,
        world: World,
        format: Format,  # noqa: A002 -- as above
        blocks: frozenset[Block] | None = None,
        *,
        gzip: bool = False,
        energy: bool = False,
    ) -> None:
        """Make all of the page but its energy, or with it, so that `page` has less to do once that may be shown."""
        dialect = format.dialect
        made = self._front(world, blocks)
        if gzip:
            self._joined(made, dialect)
        if energy and (blocks is None or Block.ENERGY in blocks):
            made = [*made, self._block(world, Block.ENERGY)]
        for block in made:
            if gzip:
                block.deflated(dialect)
            else:
                block.plain(dialect)

    def _front(self, world: World, blocks: frozenset[Block] | None) -> list[_Rendered]:
        return [self._block(world, block) for block in FRONT if blocks is None or block in blocks]

    def _joined(self, front: list[_Rendered], dialect: Dialect) -> Beginning:
        known = self._beginnings.get(dialect)
        if known is None or known[0] != front:
            plain, stretches = [each.plain(dialect) for each in front], [each.deflated(dialect) for each in front]
            known = self._beginnings[dialect] = (front, Beginning().followed_by(plain, stretches))
        return known[1]

    def _block(self, world: World, block: Block) -> _Rendered:
        version = world.versions.get(block)
        rendered = self._rendered.get(block)
        if rendered is None or version is None or rendered.version != version:
            rendered = self._rendered[block] = self._render(world, block, version)
        return rendered

    def _render(self, world: World, block: Block, version: int | None) -> _Rendered:
        families: list[tuple[Family[Any], Lines]] = []
        dropped: dict[str, int] = {}
        for table, members in self._families[block]:
            pairs = list(table.subjects(world))
            bases, subjects = [base for base, _ in pairs], [subject for _, subject in pairs]
            for family in members:
                lines = family.render(bases, subjects)
                families.append((family, lines))
                if lines.dropped:
                    dropped[family.spec.name] = lines.dropped
        return _Rendered(version, families, dropped)
