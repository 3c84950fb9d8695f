"""The audit token that is sent with requests for the log, if the group demands one.

A file with tokens may change while it is used, because tokens are replaced (`admin_tokens`). So it
is read again once a member refuses the token. Spark's workers take the file's name from the
environment, if no option names it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from dledger_formats.admin_tokens import FILE_BYTES_MAX, AdminTokens, TokensError
from dledger_formats.plain_files import read_start

VARIABLE: Final = "DLEDGER_CLIENT_AUDIT_TOKEN_FILE"
"""The environment variable with the token file. A missing file is no error, because a pod may start
before it has its token, and most groups of a cluster may demand none. Once a member demands the
token, the error names the file (`lack`).
"""


class TokenError(ValueError):
    """The token, or the file with it, cannot be used. The message does not contain the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Where the token comes from; Spark pickles it, so that workers read the file themselves."""

    token: str = field(default="", repr=False)
    file: str = ""

    def headers(self) -> dict[str, str]:
        """Return the header to send; none without a token. Raises TokenError."""
        token = self.token or self._from_file()
        return {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def is_given(self) -> bool:
        """Whether there is a token, or the name of a file that has it or may have it later."""
        return bool(self.token or self.file or os.environ.get(VARIABLE))

    def lack(self) -> str:
        """Return why there is no token, if the reason is a file that is missing; otherwise ""."""
        path = "" if self.token or self.file else os.environ.get(VARIABLE, "")
        if not path or os.path.exists(path):
            return ""
        return f"{VARIABLE} names the file {path}, which does not exist"

    def _from_file(self) -> str:
        path = self.file or os.environ.get(VARIABLE, "")
        if not path:
            return ""
        try:
            return AdminTokens.parse(read_start(path, FILE_BYTES_MAX + 1)).current
        except FileNotFoundError as error:
            if not self.file:
                return ""
            raise TokenError(f"{path}: {error.strerror}") from error
        except OSError as error:
            raise TokenError(f"{path}: {error.strerror}") from error
        except TokensError as error:
            raise TokenError(f"{path}: {error}") from error


@contextmanager
def given_in(file: str | None) -> Iterator[None]:
    """Take the token from this file within the block, also in processes that are started there.

    None leaves the environment as it is.
    """
    before = os.environ.get(VARIABLE)
    if file is not None:
        os.environ[VARIABLE] = file
    try:
        yield
    finally:
        if file is not None:
            os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def check_token(token: str) -> str:
    """Return the token, which may be empty. Raises TokenError if it is not valid."""
    try:
        return AdminTokens.parse(token.encode()).current if token else ""
    except TokensError:
        raise TokenError(
            "the token must be 32 to 256 printable ASCII characters without spaces"
        ) from None
