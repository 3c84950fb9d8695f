"""The files with the administration token of a local group, and with its audit token.

The administration token may be replaced while the group runs: members read its file once a second.
The file with the audit token is updated as quickly. Only the owner of the files may read them, and
a reader never sees half of one.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_client.local.errors import LocalGroupError
from dledger_formats.admin_tokens import FILE_BYTES_MAX, AdminTokens, TokensError

FILE_NAME: Final = "admin-token"
AUDIT_FILE_NAME: Final = "audit-token"
READ_AGAIN_S: Final = 1.0
"""Interval at which the file with the administration token is reread, as members do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTrouble:
    """The audit token cannot follow the administration token; the reason says why."""

    reason: str


def keep_token(folder: Path) -> Path:
    """Return the file in the group's folder; create it if it is missing.

    The caller must hold the folder's lock. Raises LocalGroupError if it cannot be written.
    """
    path = folder / FILE_NAME
    if not os.path.lexists(path):
        _write(path, AdminTokens(accepted=(secrets.token_urlsafe(32),), version="1"))
    return path


class AuditTokenFile:
    """The file with the audit token, which is computed from the administration token."""

    def __init__(self, folder: Path, token_file: Path) -> None:
        self.path = folder / AUDIT_FILE_NAME
        self._token_file = token_file
        self._tokens: AdminTokens | None = None

    def renew(self) -> None:
        """Write the file if the administration token has changed; blocks.

        Raises LocalGroupError, and leaves the file as it is, if the administration token cannot be
        read or the file cannot be written.
        """
        try:
            with self._token_file.open("rb") as file:
                tokens = AdminTokens.parse(file.read(FILE_BYTES_MAX + 1))
        except OSError as error:
            raise LocalGroupError(f"cannot read {self._token_file}: {error.strerror}") from error
        except TokensError as error:
            raise LocalGroupError(f"cannot use {self._token_file}: {error}") from error
        if tokens != self._tokens:
            _write(self.path, tokens.for_audits())
            self._tokens = tokens

    async def follow(self, tell: Callable[[TokenTrouble], None]) -> None:
        """Renew the file forever. Report a failure, unless its reason is that of the one before."""
        reason = ""
        while True:
            await asyncio.sleep(READ_AGAIN_S)
            before, reason = reason, ""
            try:
                await asyncio.to_thread(self.renew)
            except LocalGroupError as error:
                reason = str(error)
                if reason != before:
                    tell(TokenTrouble(reason=f"the audit token stays as it is: {reason}"))


def _write(path: Path, tokens: AdminTokens) -> None:
    """Replace a file atomically. Raises LocalGroupError."""
    unfinished = path.with_name(f"{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()  # one that a crash has left
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(tokens.to_text())
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except OSError as error:
        raise LocalGroupError(f"cannot write {path}: {error.strerror}") from error
