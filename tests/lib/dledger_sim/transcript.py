"""What happened, one line an event.

    ms      event  member  what                                 afterwards
    249.69    121  n1      AppendRequest n0>n1 t2 1..1/t2 …     F t2 of n0 end 1/t2 durable 0 …

Afterwards: role, term, leader, the log's last index and term, how much is durable and committed.
"""

import hashlib
from collections import deque

from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
)

LINES_MAX = 400


class Transcript:
    """The last lines of a run, and a digest of all of them.

    Idle is a tick, or news of a link, that changed nothing to be seen.
    """

    def __init__(self, lines_max: int = LINES_MAX, *, skip_idle: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=lines_max)
        self._skip_idle = skip_idle
        self._states: dict[str, str] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, now_us: int, number: int, who: str, what: str, afterwards: str) -> None:
        """Write one line, unless it is idle and those are skipped."""
        unchanged = self._states.get(who) == afterwards
        self._states[who] = afterwards
        if self._skip_idle and unchanged and (what == "tick" or what.startswith("link to")):
            return
        line = f"{now_us / 1000:10.2f} {number:6d}  {who:3} {what:64} {afterwards}".rstrip()
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def hexdigest(self) -> str:
        """Two runs with the same digest went alike."""
        return self._digest.hexdigest()


def described(message: Message) -> str:
    """A message in a few words."""
    name = type(message).__name__
    match message:
        case PreVoteRequest() | VoteRequest():
            rest = f"end {message.ledger_end_index}/t{message.ledger_end_term}"
        case TakeLeadershipRequest():
            rest = "now"
        case PreVoteResponse() | VoteResponse():
            rest = f"to t{message.requested_term} {message.result.value}"
        case HeartBeatRequest():
            rest = f"round {message.round} committed {message.committed_index}"
        case HeartBeatResponse():
            rest = f"round {message.round}"
        case CompareRequest():
            rest = f"#{message.probe} {message.index}/t{message.index_term}"
        case AppendRequest():
            rest = (
                f"{message.first_index}..{message.last_index}/t{message.entries_term} after "
                f"{message.previous_index}/t{message.previous_term} "
                f"committed {message.committed_index}"
            )
        case PushResponse():
            rest = (
                f"to t{message.requested_term} {message.result.value} match {message.match_index}"
            )
            if message.probe is not None:
                rest = f"#{message.probe} {rest}"
    return f"{name} {message.sender}>{message.receiver} t{message.term} {rest}"
