"""How a page is made of two worlds: energy as far as it is written, and everything else as it is now."""

import msgspec

from exporter.exposition import Format, Renderer
from exporter.metrics import Block
from exporter.model import World

ENERGY = frozenset({Block.ENERGY})


def show(
    renderer: Renderer,
    world: World,
    energy: World | None,
    form: Format,
    blocks: frozenset[Block] | None,
    *,
    gzip: bool,
) -> bytes:
    """Return the page of `world` with the energy of `energy`, as a whole; None: without any."""
    if energy is None:
        blocks = (frozenset(Block) if blocks is None else blocks) - ENERGY
    elif energy is not world:
        renderer.page(energy, form, ENERGY)  # from here on it is the block in memory
        versions = {**world.versions, Block.ENERGY.value: energy.versions[Block.ENERGY]}
        world = msgspec.structs.replace(world, versions=versions)
    return renderer.page(world, form, blocks, gzip=gzip)
