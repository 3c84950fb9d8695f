"""Waits for members that are still opening their logs, or that refuse a new audit token.

    the member opens its log    it is asked again as long as it says so, up to a bound
    the member refuses a token  a new Secret reaches members and this pod minutes apart, so the
                                member is asked again for a bounded time; without a token there is
                                no wait

Each wait is logged with the member's progress. If the wait fails, the error has the progress, too,
and says how long the wait was.
"""

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dledger_formats.http.status import Manifest
from pyspark_dledger.bearer import Bearer
from pyspark_dledger.copies import OpenFiles, opened
from pyspark_dledger.files import OpeningError, ReadError, UnauthorizedError
from pyspark_dledger.http_reader import HttpFiles

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)

TOKEN_S_MAX: Final = 150
"""The kubelet may take 90 seconds to bring a Secret into a running pod."""
PAUSE_S: Final = 2.0
LOGGED_EVERY_S: Final = 30.0
_PROBED_FILE: Final = "currterm"
"""A small file, which the member serves to any client that may read the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long each member is waited for."""

    opening_s_max: float
    token_s_max: float = TOKEN_S_MAX
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    @contextmanager
    def opened(self, place: str) -> "Iterator[OpenFiles | _Awaited]":
        """Open a folder, or a member's URL, whose `manifest` waits for the member."""
        with opened(place) as files:
            yield _Awaited(files, place, self) if isinstance(files, HttpFiles) else files


def waits_of(options: argparse.Namespace) -> Waits:
    """Return how long the options wait."""
    return Waits(opening_s_max=options.opening_within)


NO_WAITS: Final = Waits(opening_s_max=0, token_s_max=0)


class _Awaited:
    """A running member."""

    def __init__(self, files: HttpFiles, url: str, waits: Waits) -> None:
        self._files = files
        self._url = url
        self._waits = waits

    def manifest(self) -> Manifest:
        """Return the manifest, once the member has opened its log and gives its files.

        Raises ReadError, which says how long the wait was, and how far the member had come.
        """
        waits = self._waits
        found, _ = self._asked(self._files.manifest, OpeningError, waits.opening_s_max)
        if not Bearer().is_given:
            return found
        _, has_waited = self._asked(self._probe, UnauthorizedError, waits.token_s_max)
        return self._files.manifest() if has_waited else found

    def _probe(self) -> None:
        """Raise UnauthorizedError if the member refuses the token. Log any other error."""
        try:
            self._files.read_file(_PROBED_FILE, 0, 1)
        except UnauthorizedError:
            raise
        except ReadError as error:
            _LOG.info("%s", error)

    def _asked(self, ask: Callable[[], T], later: type[ReadError], s_max: float) -> tuple[T, bool]:
        """Repeat `ask` while it raises `later`; also return whether that took a wait.

        Raises `later` after `s_max` seconds.
        """
        waits = self._waits
        began_s = waits.clock()
        logged_s, has_waited = began_s - LOGGED_EVERY_S, False
        while True:
            try:
                answer = ask()
            except later as error:
                now_s = waits.clock()
                left_s = began_s + s_max - now_s
                if left_s <= 0:
                    raise later(f"{_waited(now_s - began_s)}{error}") from error
                if now_s - logged_s >= LOGGED_EVERY_S:
                    _LOG.warning("waiting up to %.0f s: %s", left_s, error)
                    logged_s = now_s
            else:
                if has_waited:
                    took_s = waits.clock() - began_s
                    _LOG.warning("%s can be read after %.0f s", self._url, took_s)
                return answer, has_waited
            waits.sleep(min(PAUSE_S, left_s))
            has_waited = True


def _waited(seconds: float) -> str:
    return f"waited for {seconds:.0f} s: " if seconds >= 1 else ""
