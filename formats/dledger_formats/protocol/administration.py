"""What the requests that change a group itself, and not its log, have in common.

A group may demand its administration token for them (`admin_tokens`). The answer to a request
without a valid token has the code ADMIN_TOKEN_MISSING, ADMIN_TOKEN_REFUSED or
ADMIN_TOKEN_NOT_READY; the remark in its frame says what to do.
"""

from dledger_formats.protocol.requests import Request


class AdminRequest(Request, kw_only=True, frozen=True):
    """A request that changes the group."""

    group_identity: str = ""
    """The identity of the intended group; a member of another one answers UNKNOWN_GROUP.
    Empty if the sender does not know it, as in Java.
    """
    admin_token: str = ""
    """The group's administration token; empty if the sender has none, as in Java."""

    def __repr__(self) -> str:
        """Return the type alone: a token must appear in no log and no traceback."""
        return f"{type(self).__name__}(…)"
