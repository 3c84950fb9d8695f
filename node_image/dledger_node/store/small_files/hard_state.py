"""Term and vote, in DLedger's `currterm`: the state that a member must never lose.

A member that forgets its vote can elect two leaders in one term. So nothing here is guessed: a
member without the file and with an empty log is joining, and must join its group before it votes
(`raft.joining`); a damaged file stops the node. The keys `joining`, `seedTerm`, `seedIndex`,
`seedSha256`, `alone`, `flushed`, `promisedTerm` and `promisedIndex` are not Java's; they are
written only while they are set, Java ignores them, and files written by Java lack them.
"""

import re
from pathlib import Path
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.raft.ready import HardState
from dledger_node.store.segments.segment import disk_error
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
)

FILE_NAME: Final = "currterm"
_TERM: Final = "currTerm"
_VOTE: Final = "voteLeader"
_JOINING: Final = "joining"
_ALONE: Final = "alone"
_FLUSHED: Final = "flushed"
_SEED: Final = ("seedTerm", "seedIndex")
_SEED_SHA256: Final = "seedSha256"
_SHA256: Final = re.compile("[a-f0-9]{64}")
_PROMISED: Final = ("promisedTerm", "promisedIndex")
_OPTIONAL: Final = (_JOINING, _ALONE, _FLUSHED, *_SEED, _SEED_SHA256, *_PROMISED)
_TRUE: Final = "true"


def load_hard_state(folder: Path, ledger_end_term: int = -1) -> HardState:
    """Read term and vote; without the file and without a log, the member is joining in term 0.

    Raises StoreDamagedError if the file cannot be trusted, or if its term is lower than
    `ledger_end_term`, the term of the log's last entry, which this member must have seen.
    """
    path = folder / FILE_NAME
    state = _read(path) or _left_by_java(path, blank=ledger_end_term < 0)
    if state.term < ledger_end_term:
        raise StoreDamagedError(
            f"{path} says term {state.term}, but the log has an entry of term {ledger_end_term}: "
            "the file was lost or is an old copy. A member that forgot its vote must not vote: "
            "restore the file or replace the member",
            Damage.HARD_STATE,
        )
    return state


def begin_hard_state(folder: Path, ledger_end_term: int) -> HardState:
    """Load term and vote at a start; a joining member saves that state before it does anything.

    Raises StoreDamagedError as `load_hard_state` does, StoreError if the state cannot be saved.
    """
    state = load_hard_state(folder, ledger_end_term)
    if state.joining:
        save_hard_state(folder, state)
    return state


def save_hard_state(folder: Path, state: HardState) -> None:
    """Save term and vote in a store's folder, durably; blocks for two fsyncs.

    Releases the ballast on a full volume. Raises StoreError, or StoreFullError if that does not
    suffice. The file then holds the old or the new state: the node must stop.
    """
    path = folder / FILE_NAME
    values: dict[str, object] = {_VOTE: state.vote_for or "", _TERM: state.term}
    values |= {key: _TRUE for key in (_JOINING, _ALONE, _FLUSHED) if getattr(state, key)}
    values |= dict(zip(_PROMISED, state.promised_end or (), strict=False))
    if state.seed is not None:
        values |= seed_values(state.seed)
    try:
        ballast.save_properties(path, values)
    except OSError as error:
        raise disk_error(f"{path}: cannot save term {state.term}", error) from error


def seed_values(seed: Seed) -> dict[str, object]:
    """Return the keys and values that describe the archive that a member's folder began with."""
    return {**dict(zip(_SEED, seed.end, strict=True)), _SEED_SHA256: seed.sha256}


def _left_by_java(path: Path, *, blank: bool) -> HardState:
    """Return the state when `currterm` is missing: Java deletes it before it renames the new one.

    Takes the state with the higher term from `.tmp` and `.bak`.
    """
    left: list[HardState] = []
    damaged: list[StoreDamagedError] = []
    for suffix in (".tmp", ".bak"):
        try:
            state = _read(path.with_name(FILE_NAME + suffix))
        except StoreDamagedError as error:
            # Java never acted on a torn first `.tmp`; a `.bak` is a copy of an earlier state.
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
    values = read_properties(path, (_TERM, _VOTE), optional=_OPTIONAL)
    if values is None:
        return None
    return HardState(
        term=parse_number(path, values, _TERM, 0),
        vote_for=values[_VOTE] or None,
        joining=_flag(path, values, _JOINING),
        alone=_flag(path, values, _ALONE),
        flushed=_flag(path, values, _FLUSHED),
        seed=_seed(path, values),
        promised_end=_log_end(path, values, _PROMISED),
    )


def _flag(path: Path, values: dict[str, str], key: str) -> bool:
    if values.get(key, _TRUE) != _TRUE:
        raise StoreDamagedError(
            f"{path}: {key} is {values[key]!r}; it must be {_TRUE} or absent",
            Damage.HARD_STATE,
        )
    return key in values


def _seed(path: Path, values: dict[str, str]) -> Seed | None:
    end, sha256 = _log_end(path, values, _SEED), values.get(_SEED_SHA256, "")
    if end is None and not sha256:
        return None
    if end is None or not _SHA256.fullmatch(sha256):
        raise StoreDamagedError(
            f"{path} does not name the archive that the folder began with: {_SEED_SHA256} is "
            f"{sha256[:80]!r}",
            Damage.HARD_STATE,
        )
    return Seed(end, sha256)


def _log_end(path: Path, values: dict[str, str], keys: tuple[str, str]) -> LogEnd | None:
    """Read a log's end from its keys for term and index; None if both are missing."""
    if not set(keys) & values.keys():
        return None
    if not set(keys) <= values.keys():
        raise StoreDamagedError(f"{path} holds only one of {' and '.join(keys)}", Damage.HARD_STATE)
    term, index = (parse_number(path, values, key, 0) for key in keys)
    return LogEnd(term, index)
