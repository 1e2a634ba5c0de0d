"""How a listen address becomes a socket that listens, or a reason why not, and what systemd has opened for us."""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable, MutableMapping

from exporter.addresses import parse_address
from exporter.validation import shown

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


_ELSEWHERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Another address of the same name may do."""

FIRST_PASSED = 3
MAX_PASSED = 64
_FAMILIES = {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}


def open_sockets(addresses: tuple[str, ...]) -> list[socket.socket]:
    """One listening socket for each address, or none at all. Waits for names to be resolved. Raises ListenError."""
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(_opened(address, addresses, sockets))
    except BaseException:
        _close(sockets)
        raise
    return sockets


def _opened(address: str, addresses: Iterable[str], sockets: Iterable[socket.socket]) -> socket.socket:
    """Open one of the addresses; `sockets` are those of the first ones."""
    parsed = parse_address(address)
    if parsed is None:
        raise ListenError(f"cannot listen on {address!r}: expected host:port, [IPv6]:port or :port")
    try:
        return _open(*parsed)
    except socket.gaierror as error:
        raise ListenError(f"cannot listen on {address}: the host name is not known ({error})") from error
    except UnicodeError as error:
        raise ListenError(f"cannot listen on {address}: this is no host name ({error})") from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        if error.errno == errno.EADDRINUSE and (ours := _overlapping(parsed[1], addresses, sockets)):
            reason = f"this daemon listens on {ours} already"
        raise ListenError(f"cannot listen on {address}: {reason}") from error


def _overlapping(port: int, addresses: Iterable[str], sockets: Iterable[socket.socket]) -> str | None:
    taken = (address for address, each in zip(addresses, sockets, strict=False) if each.getsockname()[1] == port)
    return next(taken, None)


def passed_sockets(environ: MutableMapping[str, str], pid: int) -> list[socket.socket]:
    """Return the listening sockets that systemd passed to the process `pid`, and take its variables out of `environ`.

    Empty: none were passed. Raises ListenError where one cannot be served on.
    """
    meant_for, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    environ.pop("LISTEN_PIDFDID", None)
    if not meant_for or not count or meant_for != str(pid):
        return []  # of a parent that was started by its socket, and handed its variables on
    if not count.isascii() or not count.isdigit() or int(count) > MAX_PASSED:
        raise ListenError(f"cannot serve on what systemd passed: LISTEN_FDS is {shown(count)}, not 0 to {MAX_PASSED}")
    named = names.split(":") if names else []
    sockets: list[socket.socket] = []
    problems = []
    for place in range(int(count)):
        number = FIRST_PASSED + place
        with contextlib.suppress(OSError):
            os.set_inheritable(number, False)
        try:
            sockets.append(_adopted(number))
        except ListenError as error:
            name = f" ({shown(named[place])})" if place < len(named) else ""
            problems.append(f"cannot serve on descriptor {number}{name} that systemd passed: {error}")
    if problems:
        _close(sockets)
        raise ListenError("; ".join(problems))
    return sockets


def _adopted(number: int) -> socket.socket:
    """Raise ListenError with the reason alone."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            raise ListenError("it is no socket")
    except OSError as error:
        raise ListenError("it is not open") from error
    adopted = socket.socket(fileno=number)
    reason = None
    if adopted.family not in _FAMILIES:
        reason = "it is neither of IPv4, IPv6 nor local"
    elif adopted.type != socket.SOCK_STREAM:
        reason = "it is not a stream socket; use ListenStream="
    elif not adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        reason = "it does not listen; use Accept=no"
    if reason is not None:
        adopted.close()
        raise ListenError(reason)
    adopted.setblocking(False)
    return adopted


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _open(host: str, port: int) -> socket.socket:
    """Raise OSError, or UnicodeError for what is no host name."""
    if not host:
        return _all_interfaces(port)
    # Not through the event loop, which would keep a thread for it as long as the daemon lives.
    # Text is encoded by IDNA first, whose tables are 0.5 MiB.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name such as localhost often has addresses of both kinds: IPv4 is what a scrape configuration means by it.
    refused: OSError | None = None
    for family, _, _, _, where in sorted(found, key=lambda each: each[0] is not socket.AF_INET):
        try:
            return _listening(family, where, both=False)
        except OSError as error:
            if error.errno not in _ELSEWHERE:
                raise
            refused = refused or error
    raise refused or OSError(errno.EADDRNOTAVAIL, "no address has this name")


def _all_interfaces(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _listening(socket.AF_INET6, ("::", port), both=True)
        except OSError as error:
            # IPv6 can be built in and yet be switched off for every interface.
            if error.errno not in _ELSEWHERE:
                raise
    return _listening(socket.AF_INET, ("0.0.0.0", port), both=False)  # noqa: S104 - no host was given: all of them


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
