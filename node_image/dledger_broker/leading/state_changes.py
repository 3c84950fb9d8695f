"""Changes of the broker's state on their way into the log, until this member has applied them."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import STATE_PLACE, RecordDraft
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import GroupDeleted, TopicDeleted
from dledger_node.services.drafts import Outcome

Done: TypeAlias = Callable[[Outcome], None]
"""Called once when changes are applied, or cannot be committed."""


class StateChanges:
    """Proposes changes for requests that are answered once the state has them."""

    def __init__(self, owner: LogOwner) -> None:
        self._owner = owner
        self._committed: deque[tuple[int, Done]] = deque()
        """Callbacks of committed changes that are not applied, and the physical offsets of their
        last records.
        """
        self._proposed = 0
        """The number of proposals that have not ended."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for a change."""
        return not (self._committed or self._proposed)

    def propose(
        self,
        records: Sequence[bytearray],
        done: Done,
        deletion: TopicDeleted | GroupDeleted | None = None,
        arrived_s: float | None = None,
        in_doubt: Callable[[RecordDraft], None] = lambda _: None,
    ) -> None:
        """Propose changes, all or none of which are written. The last may be a `deletion`.

        Their time counts from `arrived_s` on, or from now on (`Drafts.propose`). If their outcome
        is unknown, `in_doubt` gets the draft first: it may still be applied.
        """

        def ended(draft: RecordDraft, outcome: Outcome) -> None:
            self._proposed -= 1
            if outcome is Outcome.COMMITTED:
                self._committed.append((draft.positions[-1] + ENTRY_HEADER_SIZE, done))
                self.go_on()
                return
            if outcome is Outcome.UNKNOWN:
                in_doubt(draft)
            done(outcome)

        draft = RecordDraft((), records, STATE_PLACE, ended)
        draft.deletion = deletion
        self._proposed += 1
        self._owner.propose(draft, arrived_s)

    def go_on(self) -> None:
        """Call `done` of the changes that are applied."""
        applied = self._owner.state.tables.last_physical_offset
        while self._committed and self._committed[0][0] <= applied:
            self._committed.popleft()[1](Outcome.COMMITTED)


def not_committed() -> RefusedError:
    """Return the refusal of a request whose change no quorum took."""
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE, "no quorum took the change in time; send it again"
    )
