"""Errors of the clients.

KubeError                a request to the API server failed
├── NotFoundError        the object does not exist
│   └── GroupGoneError   the group was deleted
├── ConflictError        the object has changed since it was read
├── EvictionRefusedError a disruption budget does not permit the eviction now
├── RefusedError         the request is invalid or forbidden; a retry cannot succeed
│   ├── InvalidError     the object is invalid, no matter who sends it or when
│   └── PartlyRefusedError only some of this project's kinds may not be read
└── UnavailableError     no answer in time, or a temporary failure of the server
    └── NotServedError   the server does not know the kind, or the path
MemberSilentError        a member gave no valid answer in time
CanaryUnsupportedError   a member's release does not support canaries
"""


class KubeError(Exception):
    """A request to the API server failed."""


class NotFoundError(KubeError):
    """The object does not exist."""


class GroupGoneError(NotFoundError):
    """The group's object was deleted; another one may have its name now."""


class ConflictError(KubeError):
    """The object has changed since it was read: read it again and decide again."""


class EvictionRefusedError(KubeError):
    """A disruption budget does not permit the eviction now; the message is the API server's."""


class RefusedError(KubeError):
    """The request is invalid or forbidden; the message says why."""


class InvalidError(RefusedError):
    """The object is invalid, no matter who sends it or when; a refusal by a quota may end."""


class PartlyRefusedError(RefusedError):
    """Only some of this project's kinds may not be read; the message names the first of them."""


class UnavailableError(KubeError):
    """No answer in time, or a temporary failure of the server: retry later."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        """Create an error; the server asks for no retry before `retry_after_s`."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotServedError(UnavailableError):
    """The server does not know the kind or the path. That says nothing about the object."""


def asked_pause_s(error: Exception) -> float:
    """Return for how long the server asks for no retry; 0 if it does not."""
    return error.retry_after_s if isinstance(error, UnavailableError) else 0.0


class MemberSilentError(Exception):
    """A member gave no valid answer in time: it is gone, starting, cut off or too slow."""


class CanaryUnsupportedError(Exception):
    """A member's release does not support canaries."""
