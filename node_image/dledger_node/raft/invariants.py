"""The error for a core whose own state is impossible."""


class InvariantError(AssertionError):
    """Raised if this member's own state is impossible; the shell stops the node.

    Not a NodeError, so that no handler of those continues with a broken core. A message from a peer
    never raises it: bad messages are refused and counted (`MemberState.refuse`).
    """
