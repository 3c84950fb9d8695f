"""Term and vote, in DLedger's `currterm`: what a member must never forget.

A member that forgets its vote elects two leaders of one term. So nothing here is guessed: without
the file, and with an empty log, it is a member without a memory, which must join its group before
it votes (`raft.joining`); a damaged file stops the node. `joining` and `alone` are our own keys,
written only while they hold; Java ignores them, and leaves them out of the files that it writes.
"""

from pathlib import Path
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError, StoreError
from dledger_node.raft.ready import HardState
from dledger_node.store.segments.segment import NO_ROOM
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
    write_properties,
)

FILE_NAME: Final = "currterm"
_TERM: Final = "currTerm"
_VOTE: Final = "voteLeader"
_JOINING: Final = "joining"
_ALONE: Final = "alone"
_TRUE: Final = "true"


def load_hard_state(folder: Path, ledger_end_term: int = -1) -> HardState:
    """Read term and vote; joining, in term 0 without a vote, when there is neither that nor a log.

    StoreDamagedError when they cannot be trusted, and when they are older than the log's last
    entry: that was written in a term that this member had seen.
    """
    path = folder / FILE_NAME
    state = _read(path) or _left_by_java(path, blank=ledger_end_term < 0)
    if state.term < ledger_end_term:
        raise StoreDamagedError(
            f"{path} says term {state.term}, and the log has an entry of term {ledger_end_term}: "
            "the file was lost or is an old copy. A member that forgot its vote must not vote: "
            "restore the file, or replace the member",
            Damage.HARD_STATE,
        )
    return state


def begin_hard_state(folder: Path, ledger_end_term: int) -> HardState:
    """The same for a member that starts: that it joins is durable before it does anything else.

    StoreDamagedError, as above; StoreError when it cannot be saved.
    """
    state = load_hard_state(folder, ledger_end_term)
    if state.joining:
        save_hard_state(folder, state)
    return state


def save_hard_state(folder: Path, state: HardState) -> None:
    """Make term and vote durable; blocks for two fsyncs. `folder` is the store's, and exists.

    A volume that is full gives up its reserve for it. After a StoreError the state on disk is the
    old or the new one: the node must stop.
    """
    path = folder / FILE_NAME
    values: dict[str, object] = {_VOTE: state.vote_for or "", _TERM: state.term}
    values |= {key: _TRUE for key in (_JOINING, _ALONE) if getattr(state, key)}
    try:
        try:
            write_properties(path, values)
        except OSError as error:
            if error.errno not in NO_ROOM or not ballast.give_up(folder):
                raise
            write_properties(path, values)
    except OSError as error:
        raise StoreError(f"{path}: term {state.term} could not be saved: {error}") from error


def _left_by_java(path: Path, *, blank: bool) -> HardState:
    """The state when there is no `currterm`: Java deletes it before it renames the new one.

    The larger term of what `.tmp` and `.bak` say counts.
    """
    left: list[HardState] = []
    damaged: list[StoreDamagedError] = []
    for suffix in (".tmp", ".bak"):
        try:
            state = _read(path.with_name(FILE_NAME + suffix))
        except StoreDamagedError as error:
            # A torn first `.tmp` was never acted upon; a `.bak` is a copy of what was.
            if suffix == ".bak":
                damaged.append(error)
        else:
            left += [state] if state is not None else []
    if not left and damaged:
        raise damaged[0]
    return max(
        left,
        key=lambda state: (state.term, state.vote_for is not None),
        default=HardState(term=0, vote_for=None, joining=blank),
    )


def _read(path: Path) -> HardState | None:
    values = read_properties(path, (_TERM, _VOTE), optional=(_JOINING, _ALONE))
    if values is None:
        return None
    return HardState(
        term=parse_number(path, values, _TERM, 0),
        vote_for=values[_VOTE] or None,
        joining=_flag(path, values, _JOINING),
        alone=_flag(path, values, _ALONE),
    )


def _flag(path: Path, values: dict[str, str], key: str) -> bool:
    if values.get(key, _TRUE) != _TRUE:
        raise StoreDamagedError(
            f"{path}: {key} is {values[key]!r}; {_TRUE} is expected, or no such line",
            Damage.HARD_STATE,
        )
    return key in values
