"""The file with a group's administration tokens: members accept each, a client sends the first.

    # version 3
    uT0yq-The-token-that-clients-send-now-Wd81kQ
    9LrXe-The-one-before-it-which-is-still-valid

Each line is one token; empty lines and other comments are ignored. A second token lets the first be
replaced while requests with either arrive. The version names the content, so that a member can tell
which one it has read without naming a token. No error and no `repr` contains a token.

Each administration token has an audit token, which is computed from it, and lets auditors read the
log on a member's pages. A file with these has the same form. So both are replaced together, and no
audit token reveals the administration token that it belongs to.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final, Self

TOKEN_PATTERN: Final = re.compile(r"[!-~]{32,256}")
"""Printable ASCII without spaces, long enough to resist guessing."""
VERSION_PATTERN: Final = re.compile(r"# version ([A-Za-z0-9-]{1,64})")
TOKENS_MAX: Final = 8
FILE_BYTES_MAX: Final = 16 * 1024
_AUDIT: Final = b"dledger audit token"
"""What distinguishes audit tokens from anything else that may be computed from a token."""


class TokensError(ValueError):
    """The file is not a valid file of tokens. The message names the line, but no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTokens:
    """The tokens of one group."""

    accepted: tuple[str, ...] = field(repr=False)
    """The tokens that members accept; at least one. The first is the one to send."""
    version: str = ""
    """The version of the file; empty if it names none."""

    @property
    def current(self) -> str:
        """The token to send."""
        return self.accepted[0]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read a file. Raises TokensError for any mistake."""
        if len(raw) > FILE_BYTES_MAX:
            raise TokensError(f"the file has more than {FILE_BYTES_MAX} bytes")
        try:
            lines = raw.decode("ascii").splitlines()
        except UnicodeDecodeError:
            raise TokensError("the file has characters beyond ASCII") from None
        accepted: list[str] = []
        version = ""
        for number, line in enumerate(map(str.strip, lines), 1):
            if found := VERSION_PATTERN.fullmatch(line):
                version = found[1]
            elif line and not line.startswith("#"):
                _check(line, number)
                accepted.append(line)
        if not accepted:
            raise TokensError("the file has no token")
        if len(accepted) > TOKENS_MAX:
            raise TokensError(f"the file has more than {TOKENS_MAX} tokens")
        return cls(accepted=tuple(accepted), version=version)

    def for_audits(self) -> Self:
        """Return the audit tokens that belong to these tokens, in the same order."""
        accepted = tuple(map(_audit_token, self.accepted))
        return type(self)(accepted=accepted, version=self.version)

    def to_text(self) -> str:
        """Write the file."""
        first = [f"# version {self.version}"] if self.version else []
        return "".join(f"{line}\n" for line in (*first, *self.accepted))

    def accepts(self, token: str) -> bool:
        """Return whether this is one of the tokens, in a time that reveals nothing about them."""
        given = _digest(token)
        equal = [hmac.compare_digest(given, _digest(each)) for each in self.accepted]
        return any(equal)


def _check(line: str, number: int) -> None:
    if not TOKEN_PATTERN.fullmatch(line):
        raise TokensError(
            f"line {number} is not a token: it must be 32 to 256 printable ASCII characters "
            "without spaces"
        )


def _audit_token(token: str) -> str:
    digest = hmac.digest(token.encode("ascii"), _AUDIT, "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
