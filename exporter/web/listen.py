"""How a listen address becomes a socket that listens, or a reason why not."""

import errno
import socket
from collections.abc import MutableMapping

from exporter.addresses import parse_address

BACKLOG = 1024
"""Clients that come at once; those beyond it have to try again, a second later. The kernel may allow less."""

_REASONS = {
    errno.EADDRINUSE: "another process listens there",
    errno.EACCES: "no permission; ports below 1024 need root or CAP_NET_BIND_SERVICE",
    errno.EPERM: "no permission",
    errno.EADDRNOTAVAIL: "this host does not have the address",
    errno.EAFNOSUPPORT: "this host does not speak that kind of address",
}


class ListenError(Exception):
    """An address cannot be listened on. The message is for people and names the address."""


def open_sockets(addresses: tuple[str, ...]) -> list[socket.socket]:
    """One listening socket for each address, or none at all. Waits for names to be resolved. Raises ListenError."""
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(_open(address))  # noqa: PERF401 - those opened before one that fails must be closed
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def passed_sockets(environ: MutableMapping[str, str], pid: int) -> list[socket.socket]:
    """Return the listening sockets that systemd passed to the process `pid`, and take its variables out of `environ`.

    Empty: none were passed. Raises ListenError where one cannot be served on.
    """
    raise NotImplementedError


def _open(address: str) -> socket.socket:
    parsed = parse_address(address)
    if parsed is None:
        raise ListenError(f"cannot listen on {address!r}: expected host:port, [IPv6]:port or :port")
    host, port = parsed
    if not host:
        return _all_interfaces(address, port)
    try:
        # Not through the event loop, which would keep a thread for it as long as the daemon lives.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: the host name is not known ({error})") from error
    # A name such as localhost often has addresses of both kinds: IPv4 is what a scrape configuration means by it.
    family, _, _, _, where = min(found, key=lambda each: each[0] is not socket.AF_INET)
    try:
        return _listening(family, where, both=False)
    except OSError as error:
        raise _refusal(address, error) from error


def _all_interfaces(address: str, port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _listening(socket.AF_INET6, ("::", port), both=True)
        except OSError as error:
            # IPv6 can be built in and yet be switched off for every interface.
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise _refusal(address, error) from error
    try:
        return _listening(socket.AF_INET, ("0.0.0.0", port), both=False)  # noqa: S104 - no host was given: all of them
    except OSError as error:
        raise _refusal(address, error) from error


def _listening(family: int, where: tuple[str | int, ...] | tuple[int, bytes], *, both: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        made.setblocking(False)
        made.bind(where)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _refusal(address: str, error: OSError) -> ListenError:
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return ListenError(f"cannot listen on {address}: {reason}")
