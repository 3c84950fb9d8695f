"""Read files that may change while a member runs: again when they change, or on SIGHUP.

One contains the live settings, the other the administration tokens (`token_file`).

A file with a mistake is refused as a whole: the settings in force stay, and `problem` says what is
wrong until the file is valid. A Kubernetes ConfigMap that is mounted as a folder changes in this
way, a second or so after the kubelet has updated it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dledger_formats import live_settings
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_node.common_times import wait_s
from dledger_node.shell.token_file import TokenFile

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0


class LiveSettings:
    """The settings in force, and the file that may change them."""

    def __init__(self, settings: NodeSettings) -> None:
        """Take `settings`, and what the file says now; blocks for a small read."""
        self.current = settings
        """The settings in force."""
        self.problem = ""
        """Why the file is refused; empty if it is not."""
        self.tokens = TokenFile(settings.admin_token_file)
        """The administration tokens that this member accepts."""
        self._started_with = settings
        self._path = Path(settings.live_settings_file) if settings.live_settings_file else None
        self._seen: tuple[int, ...] | None = None
        self._wake = asyncio.Event()
        self._read()
        if self.current.log_level != settings.log_level:
            _set_log_level(self.current)

    def wake(self) -> None:
        """Read the files at once, the settings file even if it looks unchanged."""
        self._seen = None
        self._wake.set()

    async def run(self, apply: Callable[[NodeSettings], None]) -> None:
        """Watch the files until cancelled; call `apply` with the settings after each change."""
        is_watched = self._path is not None or self.tokens.is_demanded
        now_s = asyncio.get_running_loop().time
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s(now_s(), INTERVAL_S) if is_watched else None):
                    await self._wake.wait()
            self._wake.clear()
            before = self.current
            await asyncio.to_thread(self._read_files)
            if self.current != before:
                _log_changes(before, self.current)
                _set_log_level(self.current)
                apply(self.current)

    def _read_files(self) -> None:
        """Read what has changed; blocks."""
        self.tokens.read()
        self._read()

    def _read(self) -> None:
        """Read the file if it has changed since the last time, or could not be read; blocks."""
        if self._path is None:
            return
        try:
            seen = _identity(self._path)
            if seen == self._seen and not self.problem:
                return
            with self._path.open("rb") as file:
                raw = file.read(live_settings.FILE_BYTES_MAX + 1)
            if len(raw) > live_settings.FILE_BYTES_MAX:
                raise SettingsError(f"the file has over {live_settings.FILE_BYTES_MAX} bytes")
            self.current = live_settings.overlay(self._started_with, raw.decode())
        except (OSError, UnicodeDecodeError, SettingsError) as error:
            self._refuse(f"{self._path}: {error}")
            return
        self._seen = seen
        if self.problem:
            logger.info("%s is valid again", self._path)
        self.problem = ""

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            logger.error("live settings refused; those in force stay: %s", problem)
        self.problem = problem


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written or replaced."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _log_changes(before: NodeSettings, after: NodeSettings) -> None:
    old, new = live_settings.in_force(before), live_settings.in_force(after)
    changes = [f"{name} from {old[name]} to {new[name]}" for name in old if old[name] != new[name]]
    logger.info("changed %s", ", ".join(changes))


def _set_log_level(settings: NodeSettings) -> None:
    logging.getLogger().setLevel(settings.log_level.upper())
