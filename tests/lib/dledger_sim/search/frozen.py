"""A member's state as a value: without time, as a key, and as bytes from which to continue."""

import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Follower, Leader
from dledger_node.raft.membership import Membership
from dledger_node.raft.progress import PushState
from dledger_node.raft.ready import HardState

LONG_TICKS = 1_000_000
TIME_SUFFIXES = ("_tick", "_ticks", "_due", "_since", "deadline")
SAME_FOR_ALL = (
    "config", "randint", "refusals", "elections", "last_election", "last_quorum_loss", "given_up",
)  # fmt: skip
"""Attributes that are the same in all states of a member."""


def lowest(low: int, high: int) -> int:
    """Replace random choices of durations, which the search does not explore."""
    return low


def stop_clock(member: Any, *, marks: bool) -> None:
    """Set all times to the same moment, and all mere counters to zero: neither how long ago nor how
    often something happened is explored. `marks` says whether any member may ask for marks; if no
    member restarts, or none asks, marks are not needed.
    """
    member.refusals.clear()
    member.marks = dict(sorted(member.marks.items())) if marks else {}
    member.now_ticks = member.elapsed_ticks = 0
    member.last_election = member.last_quorum_loss = None
    member.elections.clear()
    member.election_deadline = LONG_TICKS
    role_state = member.role_state
    if isinstance(role_state, Follower):
        role_state.given_up = None
        if not marks:
            role_state.advertised_index = -1
    for one in (role_state, member.recalling, *getattr(role_state, "progress", {}).values()):
        for name in _times(type(one)):
            setattr(one, name, 0)
    if isinstance(role_state, Leader):
        rounds = [(round_, 0) for round_, _ in role_state.rounds_sent]
        role_state.rounds_sent.clear()
        role_state.rounds_sent.extend(rounds)


def rank(member: Any) -> int:
    """Return a member's progress: a sum of values that rarely decrease within a term."""
    role_state = member.role_state
    total = 3 * member.term + 4 * (
        member.log.end_index + member.committed_index + member.durable_index
    )
    if isinstance(role_state, Leader):
        total += role_state.heartbeat_round
        for one in role_state.progress.values():
            total += 2 * one.probe + 6 * one.match_index + one.next_index + one.answered_round
            total += one.state is PushState.APPEND
    elif isinstance(role_state, Follower):
        total += 2 * (role_state.verified_index + role_state.acknowledged_index) + 3 * bool(
            role_state.leader_id
        )
    else:
        total += len(role_state.votes)
    return int(total)


# -- bytes -----------------------------------------------------------------------------------------


class Bytes:
    """Cores as bytes. Values that never change are shared between all cores made of them."""

    def __init__(self) -> None:
        self._shared: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def of(self, raft: Raft) -> bytes:
        """Return a core as bytes."""
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._number  # type: ignore[method-assign]
        pickler.dump(raft)
        return file.getvalue()

    def raft(self, blob: bytes) -> Raft:
        """Recreate a core from its bytes."""
        unpickler = pickle.Unpickler(io.BytesIO(blob))
        unpickler.persistent_load = self._shared.__getitem__  # type: ignore[method-assign]
        raft = unpickler.load()
        assert isinstance(raft, Raft)
        return raft

    def _number(self, value: Any) -> int | None:
        if not isinstance(value, RaftConfig | HardState | Membership) and value is not lowest:
            return None
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._shared)
            self._shared.append(value)
        return number


# -- keys ------------------------------------------------------------------------------------------


@dataclass
class _Mutable:
    """A mutable dataclass, whose parameters are the default for other types."""


_MUTABLE = _Mutable.__dataclass_params__  # type: ignore[attr-defined]
_HOW: dict[type, Callable[[Any], Any]] = {}
"""How the values of a type are frozen."""
_KEYS: set[type] = set()
"""Types whose values can be keys as they are."""
_TIMES: dict[type, tuple[str, ...]] = {}


def frozen(value: Any) -> Any:
    """Return a value with the same content that can be a key."""
    kind = type(value)
    how = _HOW.get(kind)
    if how is None:
        how = _HOW[kind] = _how(kind)
    return how(value)


def _all_frozen(values: Iterable[Any]) -> list[Any]:
    return [one if type(one) in _KEYS else frozen(one) for one in values]


def _how(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, set):
        return frozenset
    if issubclass(kind, dict):
        return lambda value: (*value, *_all_frozen(value.values()))
    if issubclass(kind, list | tuple | deque):
        return lambda value: tuple(_all_frozen(value))
    if getattr(kind, "__dataclass_params__", _MUTABLE).frozen or not _slots(kind):
        _KEYS.add(kind)
        return lambda value: value
    names = [name for name in _slots(kind) if name not in SAME_FOR_ALL]
    if len(names) == 1:
        return lambda value: (kind, frozen(getattr(value, names[0])))
    fields = attrgetter(*names)
    return lambda value: (kind, *_all_frozen(fields(value)))


def _slots(kind: type) -> tuple[str, ...]:
    return tuple(getattr(kind, "__slots__", ()))


def _times(kind: type) -> tuple[str, ...]:
    names = _TIMES.get(kind)
    if names is None:
        names = _TIMES[kind] = tuple(one for one in _slots(kind) if one.endswith(TIME_SUFFIXES))
    return names
