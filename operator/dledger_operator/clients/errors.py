"""What a request may end with, when not with an answer.

KubeError                the API server
├── NotFoundError        the object, or its kind, does not exist
├── ConflictError        somebody changed the object since it was read
├── RefusedError         the server will never take this request as it is: invalid or forbidden
└── UnavailableError     no answer in time, or the server cannot answer now
MemberSilentError        a member gave no answer that can be used
"""


class KubeError(Exception):
    """The API server did not do what was asked."""


class NotFoundError(KubeError):
    """The object, or its kind, does not exist."""


class ConflictError(KubeError):
    """Somebody changed the object since it was read: read it again and decide again."""


class RefusedError(KubeError):
    """The server will never take this request as it is: the message says why."""


class UnavailableError(KubeError):
    """No answer in time, or the server cannot answer now: try again later."""


class MemberSilentError(Exception):
    """A member gave no answer that can be used: it is gone, starting, cut off or too slow."""
