"""Which connections are cut when all of them together leave too much unread."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dledger_node.remoting.gate import Gate
from dledger_node.remoting.limits import Limits, Reason

TOTAL_MAX = 1000
ANSWER_MAX = 200


@dataclass(eq=False)
class Reader:
    """A connection that reads nothing."""

    gate: Gate
    address: str
    peer_id: str | None = None
    unsent_bytes: int = 0
    cut_for: list[Reason] = field(default_factory=list)

    def answer(self, count: int) -> None:
        if not self.cut_for:
            self.unsent_bytes += count
            self.gate.count_unsent(count)

    def cut(self, reason: Reason, detail: str) -> None:
        self.cut_for.append(reason)
        released, self.unsent_bytes = self.unsent_bytes, 0
        self.gate.count_unsent(-released)

    def overdue(self, now_s: float) -> Reason | None:
        return None

    def end(self) -> None:
        """Do nothing."""

    pause_for_room = resume = end


def readers(count: int) -> tuple[Gate, list[Reader]]:
    gate = Gate(Limits(unsent_bytes_total_max=TOTAL_MAX), lambda: 0.0)
    made = [Reader(gate, f"host-{number}") for number in range(count)]
    for reader in made:
        gate.enter(reader)
    return gate, made


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(1, ANSWER_MAX)), max_size=300))
def test_unread_answers_are_bounded_whoever_gets_them(answers: list[tuple[int, int]]) -> None:
    gate, everyone = readers(30)

    for number, count in answers:
        everyone[number].answer(count)
        assert gate.unsent_bytes == sum(reader.unsent_bytes for reader in everyone)
        assert gate.unsent_bytes <= TOTAL_MAX

    assert all(set(reader.cut_for) <= {Reason.UNREAD} for reader in everyone)


def test_those_that_leave_most_unread_are_cut_and_no_small_one() -> None:
    _, (small, *large) = readers(4)
    small.answer(50)
    for reader in large:
        reader.answer(300)

    small.answer(60)

    assert not small.cut_for
    assert sum(bool(reader.cut_for) for reader in large) == 1, "one is enough"
