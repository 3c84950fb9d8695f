"""The verdict."""


class ViolationError(AssertionError):
    """Raised when the group did what no group may do.

    `rule` is the broken rule in a few words; two failures with the same rule count as the same
    when a tape is made smaller.
    """

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
