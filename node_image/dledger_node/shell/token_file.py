"""The file with the group's administration tokens, and the requests that lack one of them.

Audit tokens are computed from these (`admin_tokens`); `http.auditors` demands them.

A Kubernetes Secret that is mounted as a folder changes while a member runs. A file with a mistake,
or one that is gone, changes nothing: the tokens that were read before stay valid. A member that has
never read any refuses every such request.
"""

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from dledger_formats.admin_tokens import FILE_BYTES_MAX, AdminTokens, TokensError
from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.http.auditors import Lack
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)


class AdminRefusal(NamedTuple):
    """The answer to a request that is refused."""

    code: DLedgerResponseCode
    remark: str
    """What is wrong, and what to do about it."""


_CODES: Final = {
    Lack.MISSING: DLedgerResponseCode.ADMIN_TOKEN_MISSING,
    Lack.WRONG: DLedgerResponseCode.ADMIN_TOKEN_REFUSED,
    Lack.NOT_READY: DLedgerResponseCode.ADMIN_TOKEN_NOT_READY,
}
_REMARKS: Final = {
    Lack.MISSING: "this group demands its administration token for this request, which has none: "
    "give it with --admin-token-file or DLEDGER_CLIENT_ADMIN_TOKEN",
    Lack.WRONG: "the administration token of this request is not one of this group's: it may have "
    "been replaced, or belong to another group",
    Lack.NOT_READY: "this member demands the administration token and could not read it yet, so it "
    "takes no such request",
}


class TokenFile:
    """The tokens that this member accepts, and the number of requests without a valid one."""

    def __init__(self, path: str) -> None:
        """`path` is empty if requests need no token. Blocks for a small read."""
        self.refused: Counter[Lack] = Counter()
        """How many requests were refused."""
        self._path = Path(path) if path else None
        self._tokens: AdminTokens | None = None
        self._audit_tokens: AdminTokens | None = None
        self._seen: tuple[int, ...] | None = None
        self._problem = ""
        self._lines = LineBudget()
        self.read()

    @property
    def is_demanded(self) -> bool:
        """Whether requests need a token."""
        return self._path is not None

    @property
    def version(self) -> str:
        """The version of the accepted tokens; empty if there are none, or they have no version."""
        return self._tokens.version if self._tokens else ""

    def read(self) -> None:
        """Read the file if it has changed since the last time, or could not be read; blocks."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                seen = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
                if seen == self._seen and not self._problem:
                    return
                tokens = AdminTokens.parse(file.read(FILE_BYTES_MAX + 1))
        except (OSError, TokensError) as error:
            self._note_problem(f"{self._path}: {error}")
            return
        if tokens != self._tokens:
            logger.info("accepts the administration tokens of version %s", tokens.version or "-")
            self._audit_tokens = tokens.for_audits()
        if self._problem:
            logger.info("%s is valid again", self._path)
        self._tokens, self._seen, self._problem = tokens, seen, ""

    def accepts_audit_token(self, token: str) -> bool | None:
        """Return whether this is an audit token of the group; None if no tokens were read yet."""
        return self._audit_tokens.accepts(token) if self._audit_tokens else None

    def refuse(self, request: AdminRequest, address: str) -> AdminRefusal | None:
        """Return why a request is refused; None if it may be served. `address` is its sender's."""
        lack = self._lack(request.admin_token)
        if lack is None:
            return None
        self.refused[lack] += 1
        admitted = self._lines.admit(lack)
        if admitted is not None:
            what = type(request).__name__
            logger.warning("refused a %s from %s: %s%s", what, address, _REMARKS[lack], admitted)
        return AdminRefusal(_CODES[lack], _REMARKS[lack])

    def _lack(self, token: str) -> Lack | None:
        if self._path is None:
            return None
        if not token:
            return Lack.MISSING
        if self._tokens is None:
            return Lack.NOT_READY
        return None if self._tokens.accepts(token) else Lack.WRONG

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            stay = "the tokens stay as they are" if self._tokens else "there are no tokens yet"
            logger.error("cannot read the administration tokens, so %s: %s", stay, problem)
        self._problem = problem
