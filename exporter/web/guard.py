"""Who may ask: what the file of `--web.config.file` wants of clients, as it is on disk now."""

import ssl
from collections.abc import Callable
from typing import Self

from exporter.web.messages import Request, Response


class Guard:
    """Holds the last configuration that could be read, and looks itself whether its files have changed."""

    @classmethod
    def load(cls, path: str) -> Self:
        """Read the file and all that it names. Raises exporter.config.ConfigError with every problem in them."""
        raise NotImplementedError

    @property
    def secure(self) -> bool:
        """Whether connections carry TLS."""
        raise NotImplementedError

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the files as they are now are not used; empty when they are."""
        raise NotImplementedError

    def reload(self) -> list[str]:
        """Read all files again, changed or not; with problems, which are returned, what was read before stays."""
        raise NotImplementedError

    def context(self) -> ssl.SSLContext | None:
        """What the next connection is encrypted with; None: nothing."""
        raise NotImplementedError

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return what is added to every response."""
        raise NotImplementedError

    async def refusal(self, request: Request, *, limited: bool) -> Response | None:
        """Return the answer to a request that may not pass; None: it may. `limited`: the rate limit counts it."""
        raise NotImplementedError


Clock = Callable[[], float]
