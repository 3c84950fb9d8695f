"""Errors of local groups."""

from dledger_client.errors import ClientError


class LocalGroupError(ClientError):
    """The requested local group cannot be started; nothing was changed."""


class MemberFailedError(ClientError):
    """A member cannot be started, or exits repeatedly right after starting.

    The message contains the last line of its log.
    """
