"""Who may ask: what the file of `--web.config.file` wants of clients, as it is on disk."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping

from exporter.config import ConfigError
from exporter.web.messages import Request, Response, plain
from exporter.web.protection.login import BusyError, Login, bcrypt_check, credentials
from exporter.web.protection.rate import Bucket
from exporter.web.protection.settings import Settings, Stamp, UnreadableError, stamp
from exporter.web.protection.tls import Tls, TlsError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often files are looked at, while there are connections."""
RETRY_SECONDS = 60.0
"""After this files that are not used are read again, changed or not: it may have been for want of a descriptor."""

_DENIED = plain(401, headers=(("WWW-Authenticate", 'Basic realm="gpu-exporter", charset="UTF-8"'),))


class Guard:
    """Holds the last configuration that could be read, and looks itself whether its files have changed.

    A file that is broken, or half written, changes nothing: certificates and users from before hold on.
    """

    def __init__(self, path: str, settings: Settings, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._looked_at = self._read_at = clock()
        self._problems: tuple[str, ...] = ()
        self._stamps = dict(settings.stamps)
        self._login: Login | None = None
        self._bucket: Bucket | None = None
        self.denied = 0
        """Requests without a valid login."""
        self.refused = 0
        """Requests that came too fast, or whose login could not be checked for want of time."""
        self._remarks: tuple[str, ...] = ()
        self._settings = settings
        self._tls = settings.tls
        self._take(settings)

    @classmethod
    def load(cls, path: str, clock: Callable[[], float] = time.monotonic) -> "Guard":
        """Read the file and all that it names. Raises ConfigError with every problem in them."""
        return cls(path, Settings(path), clock)

    @property
    def secure(self) -> bool:
        """Whether connections carry TLS."""
        return self._tls is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the files as they are now are not used; empty when they are."""
        return self._problems

    @property
    def headers(self) -> Mapping[str, str]:
        """What is added to every response."""
        return self._settings.headers

    @property
    def hashes(self) -> int:
        """How many logins cost a hash."""
        return 0 if self._login is None else self._login.hashes

    def reload(self) -> list[str]:
        """Read all files again, changed or not; with problems, which are returned, what was read before stays.

        Unlike a change that is found on disk, this may also end login, encryption or the need for certificates.
        """
        self._read(asked=True)
        return list(self._problems)

    def encryption(self) -> Tls | None:
        """Return what the next connection is encrypted with; None: nothing."""
        self._look()
        return self._tls

    async def refusal(self, request: Request, *, limited: bool) -> Response | None:
        """Return the answer to a request that may not pass; None: it may. `limited`: the rate limit counts it."""
        self._look()
        if limited and self._bucket is not None and not self._bucket.take(self._clock()):
            self.refused += 1
            wait = str(max(1, math.ceil(self._bucket.interval)))
            return plain(429, "requests come too fast", (("Retry-After", wait),))
        if self._login is None:
            return None
        given = credentials(request.headers.get("authorization"))
        try:
            if given is not None and await self._login.admits(*given, request.client):
                return None
        except BusyError:
            self.refused += 1
            return plain(503, "too many logins are being checked; try again", (("Retry-After", "1"),))
        self.denied += 1
        return _DENIED

    def _look(self) -> None:
        """Read the files again when they have changed, or when the last time they were read is long ago and failed."""
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        again = self._problems and now - self._read_at >= RETRY_SECONDS
        if again or any(stamp(path) != before for path, before in self._stamps.items()):
            self._read(asked=False)
        if self._tls is not None and self._tls.full:
            with contextlib.suppress(TlsError):
                self._tls = self._tls.anew()

    def _read(self, *, asked: bool) -> None:
        self._read_at = self._clock()
        stamps: Mapping[str, Stamp | None] = {path: stamp(path) for path in self._stamps}
        try:
            settings = Settings(self._path)
            stamps = settings.stamps
            if not asked:
                self._refuse_weaker(settings)
            self._take(settings)
        except ConfigError as error:
            if isinstance(error, UnreadableError):
                stamps = error.stamps
            self._keep(error.messages, asked=asked)
        except Exception as error:  # noqa: BLE001 - whatever breaks, it opens no door and ends no connection
            self._keep((f"{self._path}: cannot be read ({type(error).__name__})",), asked=asked)
        else:
            self._problems = ()
            logger.info("certificates, users and rules for clients are read again", extra={"file": self._path})
        self._stamps = dict(stamps)

    def _refuse_weaker(self, settings: Settings) -> None:
        """Raise ConfigError where less is asked of clients: an editor or a copy may be half way through the file."""
        weaker = settings.weaker_than(self._settings)
        if weaker is not None:
            raise UnreadableError([f"{self._path}: {weaker}, which takes SIGHUP or a restart"], settings.stamps)

    def _keep(self, problems: tuple[str, ...], *, asked: bool) -> None:
        if not asked and problems != self._problems:
            for problem in problems:
                logger.error("what was read before stays in force: %s", problem)
        self._problems = problems

    def _take(self, settings: Settings) -> None:
        """Use the settings from here on. Raises ConfigError, and uses none of them."""
        if not settings.users:
            self._login = None
        elif self._login is None:
            try:
                self._login = Login(settings.users, bcrypt_check())
            except ImportError:
                problem = "basic_auth_users: login needs the Python package bcrypt"
                raise ConfigError([f"{self._path}: {problem}"]) from None
        else:
            self._login.users = settings.users
        if settings.remarks != self._remarks:
            self._remarks = settings.remarks
            for remark in settings.remarks:
                logger.info("%s", remark, extra={"file": self._path})
        wanted = (settings.interval, settings.burst)
        if settings.interval <= 0:
            self._bucket = None
        elif self._bucket is None or wanted != (self._bucket.interval, self._bucket.burst):
            self._bucket = Bucket(*wanted)
        self._settings = settings
        self._tls = settings.tls
