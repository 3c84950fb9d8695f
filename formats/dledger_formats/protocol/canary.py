"""APPEND_CANARY: an extension that appends one entry which readers skip (`log.canaries`).

    APPEND_CANARY   request    {group, remoteId, groupIdentity}
                    response   as to APPEND, without pos

With it, a program tests whether a group takes appends. The entry is handled like every append: the
answer is SUCCESS once a quorum holds it. A server without this request, such as Java's, answers
REQUEST_CODE_NOT_SUPPORTED.

Codes: those of APPEND; and LEADER_PENDING_FULL if too many canaries wait.
"""

from typing import Final

from dledger_formats.protocol.requests import Request

APPEND_CANARY: Final = 52018
"""The request's code in its frame, from this project's range (52000 to 52999)."""


class AppendCanaryRequest(Request, kw_only=True, frozen=True):
    """Append one entry that readers skip."""

    group_identity: str = ""
    """The identity of the group; a member of another group of that name refuses the request."""
