"""Why a local group cannot be, or cannot go on."""

from dledger_client.errors import ClientError


class LocalGroupError(ClientError):
    """A local group cannot be started as it was asked for; nothing was changed."""


class MemberFailedError(ClientError):
    """A member ends again and again right after its start; the message holds its last words."""
