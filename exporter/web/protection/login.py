"""Is this login one of the configured ones? bcrypt is slow on purpose: it runs once a login, and one at a time.

Nothing here tells by its time whether a user exists: every attempt that gets as far as a hash costs one, of a cost that
configured users have. Hashes are computed in a thread: bcrypt lets the event loop go on meanwhile.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import importlib
import ipaddress
import secrets
import string
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from exporter.web.protection.form import cost

MAX_KNOWN = 100
"""Logins of which it is remembered that they are good, and as many that are not."""
MAX_WAITING = 8
"""Logins that wait for their hash; more are told to come back."""
MAX_FROM_ONE = 2
"""Of those one client may have as many, so that who guesses keeps nobody elsewhere from logging in."""
REST = 3.0
"""After a login that failed, hashing rests for so many times as long as it took: guessers get a quarter of one core."""
MAX_PASSWORD_BYTES = 72
"""bcrypt looks at no more, and its library refuses longer ones."""

Check = Callable[[bytes, bytes], bool]
"""Password, hash -> whether they belong together. May take seconds, and raise ValueError."""

_SALT = string.ascii_letters + string.digits + "./"


class BusyError(Exception):
    """Too many logins wait for their turn."""


def bcrypt_check() -> Check:
    """Return bcrypt's comparison; it is loaded here, because it takes memory that only a login is worth."""
    check: Check = importlib.import_module("bcrypt").checkpw
    return check


def credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Return user and password of a header of basic authentication; None: it is none, or no login can be so."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        name = user.decode()
    except (binascii.Error, UnicodeError, ValueError):
        return None
    return (name, password) if colon and name and len(password) <= MAX_PASSWORD_BYTES else None


class Known:
    """A bounded set that forgets what was not asked for longest. Its members are digests with a key of their own."""

    def __init__(self) -> None:
        self._members: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: bytes) -> bool:
        if member not in self._members:
            return False
        self._members.move_to_end(member)
        return True

    def add(self, member: bytes) -> None:
        self._members[member] = None
        self._members.move_to_end(member)
        if len(self._members) > MAX_KNOWN:
            self._members.popitem(last=False)


class Login:
    """Lives in the event loop that asks it first."""

    def __init__(self, users: Mapping[str, bytes], check: Check) -> None:
        """Make a login of `users`, hashes by name."""
        self._check = check
        self._key = secrets.token_bytes(32)
        self._good = Known()
        self._bad = Known()
        self._attempts: dict[bytes, asyncio.Task[bool]] = {}
        self._waiting: Counter[str] = Counter()
        """How many of them each client began."""
        self._turn = asyncio.Lock()
        self._rests_until = 0.0
        self.users = users
        self.hashes = 0
        """How many were computed."""

    @property
    def users(self) -> Mapping[str, bytes]:
        """Hashes by name. Logins that were good with a hash that is replaced are no longer."""
        return self._users

    @users.setter
    def users(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self._costs = sorted({cost(hashed.decode("ascii")) for hashed in users.values()})

    async def admits(self, user: str, password: bytes, client: str = "") -> bool:
        """Tell whether the user has this password; `client` is the address that asks. Raises BusyError."""
        users, stand_in = self._users, self._stand_in(user)
        hashed = users.get(user, stand_in)
        # The hash belongs to it, so that a login ends with the password that it was good for.
        digest = self._digest(user.encode(), hashed, password)
        if digest in self._good:
            return user in users
        if digest in self._bad:
            return False
        attempt = self._attempts.get(digest)
        if attempt is None:
            client = _origin(client)
            if len(self._attempts) >= MAX_WAITING or self._waiting[client] >= MAX_FROM_ONE:
                raise BusyError
            attempt = asyncio.get_running_loop().create_task(self._attempt(digest, hashed, password))
            self._attempts[digest] = attempt
            self._waiting[client] += 1
            attempt.add_done_callback(lambda ended: self._ended(ended, digest, client))
        # The hash is computed to its end also when nobody waits for it any more: a thread cannot be stopped.
        return await asyncio.shield(attempt) and user in users

    async def _attempt(self, digest: bytes, hashed: bytes, password: bytes) -> bool:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._rests_until - loop.time())
            began = loop.time()
            self.hashes += 1
            good = await self._computed(password, hashed)
            if not good:
                ended = loop.time()
                self._rests_until = ended + REST * (ended - began)
        (self._good if good else self._bad).add(digest)
        return good

    def _ended(self, attempt: asyncio.Task[bool], digest: bytes, client: str) -> None:
        del self._attempts[digest]
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]
        if not attempt.cancelled():
            attempt.exception()  # told to those who waited, if anybody still does

    async def _computed(self, password: bytes, hashed: bytes) -> bool:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()

        def finish(good: bool) -> None:
            if not done.done():
                done.set_result(good)

        def compute() -> None:
            good = False
            with contextlib.suppress(BaseException):  # whatever breaks, also within Rust, the login is not good
                good = self._check(password, hashed)
            with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
                loop.call_soon_threadsafe(finish, good)

        try:
            # A thread for each: there are few, and one that waits for the next would stay for the life of the daemon.
            threading.Thread(target=compute, name="login", daemon=True).start()
        except RuntimeError as error:  # the host or the unit allows no further thread
            raise BusyError from error
        return await done

    def _stand_in(self, user: str) -> bytes:
        """Return a hash to compare an unknown user's password with: always of the same cost, which some user has."""
        mark = self._digest(user.encode(), b"", b"")
        text = "".join(_SALT[byte % len(_SALT)] for byte in hashlib.blake2b(mark, digest_size=53).digest())
        return f"$2b${self._costs[mark[0] % len(self._costs)]:02d}${text[:21]}.{text[22:]}".encode("ascii")

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in parts:
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()


def _origin(client: str) -> str:
    """Return what the addresses of one client have in common: of IPv6 the network, all of which may be its own."""
    try:
        address = ipaddress.IPv6Address(client.strip("[]"))
    except ValueError:
        return client
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address), 64), strict=False))
