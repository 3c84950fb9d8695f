"""The error that ends a run when a rule is broken."""


class ViolationError(AssertionError):
    """A group broke a rule.

    `rule` names the rule; the shrinker of tapes treats two failures of the same rule as equal.
    """

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
