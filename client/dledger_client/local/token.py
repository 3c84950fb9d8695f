"""The file with the administration token of a local group."""

import os
import secrets
from pathlib import Path
from typing import Final

from dledger_client.local.errors import LocalGroupError
from dledger_formats.admin_tokens import AdminTokens

FILE_NAME: Final = "admin-token"


def keep_token(folder: Path) -> Path:
    """Return the file in the group's folder; make it if there is none. Only its owner may read it.

    Raises LocalGroupError if it cannot be written.
    """
    path = folder / FILE_NAME
    tokens = AdminTokens(accepted=(secrets.token_urlsafe(32),), version="1")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    except OSError as error:
        raise LocalGroupError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(tokens.to_text())
    return path
