"""The problem that is reported when a reconciliation fails, with what to do. Pure."""

from typing import Final

from dledger_operator import reasons
from dledger_operator.clients.errors import (
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
    RefusedError,
)
from dledger_operator.problem import Problem

MESSAGE_LENGTH_MAX: Final = 512
_PERMISSION: Final = (
    "give the operator this permission: the roles of its chart, in its release, have all that it "
    "needs"
)
_UNAVAILABLE: Final = "repair what does not answer: the API server, or a webhook of it"
_CURES: Final[tuple[tuple[type[KubeError], str], ...]] = (
    (InvalidError, "correct the part of the spec or the object that the message names"),
    (RefusedError, _PERMISSION),
    (ConflictError, "find the client that keeps changing this object, and let it leave it alone"),
    (NotFoundError, "create what the message names, or see who deletes it"),
)


def problem_of(error: KubeError) -> Problem:
    """Return the problem of a group whose reconciliation fails. The error names the request."""
    cure = next((text for kind, text in _CURES if isinstance(error, kind)), _UNAVAILABLE)
    text = str(error)[:MESSAGE_LENGTH_MAX]
    return Problem(
        reason=reasons.RECONCILE_FAILED,
        message=(
            f"the operator cannot tell that the spec is in effect, since a request fails: {text}; "
            f"{cure}; the operator tries again, at least every 30 s"
        ),
    )
