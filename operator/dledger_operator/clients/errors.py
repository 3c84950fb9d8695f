"""Errors of the clients.

KubeError                a request to the API server failed
├── NotFoundError        the object or its kind does not exist
├── ConflictError        the object has changed since it was read
├── RefusedError         the request is invalid or forbidden; a retry cannot succeed
└── UnavailableError     no answer in time, or a temporary failure of the server
MemberSilentError        a member gave no valid answer in time
"""


class KubeError(Exception):
    """A request to the API server failed."""


class NotFoundError(KubeError):
    """The object or its kind does not exist."""


class ConflictError(KubeError):
    """The object has changed since it was read: read it again and decide again."""


class RefusedError(KubeError):
    """The request is invalid or forbidden; the message says why."""


class UnavailableError(KubeError):
    """No answer in time, or a temporary failure of the server: retry later."""


class MemberSilentError(Exception):
    """A member gave no valid answer in time: it is gone, starting, cut off or too slow."""
