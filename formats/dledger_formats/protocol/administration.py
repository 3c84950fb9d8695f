"""What all requests have in common that change a group itself, not its log.

A group may demand its administration token for them (`admin_tokens`). The answer to a request that
lacks it has the code ADMIN_TOKEN_MISSING, ADMIN_TOKEN_REFUSED or ADMIN_TOKEN_NOT_READY, and its
frame a remark that says what to do.
"""

from dledger_formats.protocol.requests import Request


class AdminRequest(Request, kw_only=True, frozen=True):
    """A request that changes the group."""

    group_identity: str = ""
    """The identity of the group that is meant; a member of another one answers UNKNOWN_GROUP.
    Empty if the sender does not know it, as in Java.
    """
    admin_token: str = ""
    """The group's administration token; empty if the sender has none, as in Java."""

    def __repr__(self) -> str:
        """Return the type alone: a token must appear in no log and no traceback."""
        return f"{type(self).__name__}(…)"
