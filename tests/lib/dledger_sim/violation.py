"""The verdict."""


class ViolationError(AssertionError):
    """Raised when the group did what no group may do."""
