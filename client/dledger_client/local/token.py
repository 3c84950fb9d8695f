"""The files with the administration token of a local group, and with its audit token."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

from dledger_client.local.errors import LocalGroupError
from dledger_formats.admin_tokens import AdminTokens, TokensError

FILE_NAME: Final = "admin-token"
AUDIT_FILE_NAME: Final = "audit-token"


def keep_token(folder: Path) -> Path:
    """Return the file in the group's folder; make it if there is none. Only its owner may read it.

    Raises LocalGroupError if it cannot be written.
    """
    path = folder / FILE_NAME
    tokens = AdminTokens(accepted=(secrets.token_urlsafe(32),), version="1")
    with contextlib.suppress(FileExistsError):
        _write(path, tokens, os.O_EXCL)
    return path


def keep_audit_token(folder: Path, token_file: Path) -> Path:
    """Write the file with the audit token that belongs to the administration token; return it.

    Raises LocalGroupError if it cannot be written, or if the other one cannot be read.
    """
    path = folder / AUDIT_FILE_NAME
    try:
        tokens = AdminTokens.parse(token_file.read_bytes())
    except OSError as error:
        raise LocalGroupError(f"cannot read {token_file}: {error.strerror}") from error
    except TokensError as error:
        raise LocalGroupError(f"cannot use {token_file}: {error}") from error
    _write(path, tokens.for_audits(), os.O_TRUNC)
    return path


def _write(path: Path, tokens: AdminTokens, how: int) -> None:
    """Write a file that only its owner may read. Raises FileExistsError, LocalGroupError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise LocalGroupError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(tokens.to_text())
