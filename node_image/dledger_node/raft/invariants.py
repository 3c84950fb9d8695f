"""The error that says that a member contradicts itself."""


class InvariantError(AssertionError):
    """Raised when this member's own state is impossible; the shell stops the node.

    No NodeError, so that nobody who handles those carries on with a broken core. What a peer says
    can never raise it: that is refused and counted (`MemberState.refuse`).
    """
