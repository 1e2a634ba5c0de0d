"""Listen addresses as people write them: `host:port`, `[IPv6]:port`, or `:port` for all interfaces."""

import re

MAX_PORT = 65535

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]/\s]*)):(?P<port>[0-9]{1,5})", re.ASCII)


def parse_address(text: str) -> tuple[str, int] | None:
    """Return host and port, the host empty for all interfaces; None: this is no address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > MAX_PORT:
        return None
    return match["ipv6"] or match["host"] or "", int(match["port"])


def written(host: str, port: int) -> str:
    """Return the address as it would be given; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
