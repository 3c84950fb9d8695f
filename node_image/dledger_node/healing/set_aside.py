"""Set the damaged files of a store aside, so that its member can re-fetch them from the leader.

The sound part stays: whole data segments, from the first on, with every entry verified. The other
files are renamed, not deleted, into a folder named after the time:

    damaged-20261122T140312.123456Z/
        healing          properties: the lost entries and the kind of damage
        0000…            the data files that were not kept, or the index files
        currterm         if term and vote could not be trusted
        memberships      if the membership before the log's first entry is lost

The order of the steps makes a crash between two of them leave a joining member, or the damage as it
was: create the folder with its `healing` file; save that the member is joining (`raft.joining`);
rename the files, newest first; save the checkpoint with the new end of the log. Before that last
step, opening refuses the log because it ends too early, and all steps are repeated.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger_formats.log import disk
from dledger_node.errors import LaterFormatError, StoreDamagedError, StoreError
from dledger_node.healing.sound_part import sound_part
from dledger_node.raft.ready import HardState
from dledger_node.store.derived import memberships_file
from dledger_node.store.log.damaged_ranges import named_starts
from dledger_node.store.log.entry_walk import WINDOW_BYTES
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.loading import INDEX_USED_END, durable_end_pos
from dledger_node.store.segments.listing import whole_starts_of
from dledger_node.store.segments.segment import disk_error, sync_folder
from dledger_node.store.segments.segment_list import SegmentList
from dledger_node.store.small_files import ballast, hard_state
from dledger_node.store.small_files import checkpoint as checkpoint_file
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
    write_properties,
)

PREFIX: Final = "damaged-"
_HEALING: Final = "healing"
_FIRST: Final = "firstIndex"
_LAST: Final = "lastIndex"
_VERDICT: Final = "verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The sound part of a store; every entry before the first damage was verified."""

    log_is_sound: bool
    index_is_sound: bool
    """Whether the index files can be read; each opening rewrites wrong units."""
    hard_state: HardState | None
    """Term and vote; None if they cannot be trusted or are older than the log."""
    front_is_lost: bool
    """Whether the membership or state before the first entry is lost; then no entry is kept."""
    end_index: int
    """The last entry that is kept; -1 if none is."""
    end_term: int
    lost_names: tuple[str, ...]
    """Names of the data files that are not kept, newest first."""
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A folder of damaged files, and the lost entries; indexes are -1 if unknown."""

    folder: Path
    first_index: int
    last_index: int


def survey(
    folder: Path,
    *,
    segment_size_bytes: int,
    index_segment_size_bytes: int,
    front_is_lost: bool = False,
) -> Survey:
    """Read a store that no process has open, up to its damage; blocks, and changes nothing.

    `front_is_lost` says that opening has found this kind of damage. Raises StoreDamagedError if the
    cause is not damage to a log, for example files of another size.
    """
    checkpoint = checkpoint_file.load_checkpoint(folder)
    names = named_starts(folder / disk.DATA_FOLDER)
    index_names = named_starts(folder / disk.INDEX_FOLDER)
    used_end = durable_end_pos(folder, checkpoint, index_segment_size_bytes)
    data_starts = whole_starts_of(folder / disk.DATA_FOLDER, segment_size_bytes, used_end)
    index_starts = whole_starts_of(
        folder / disk.INDEX_FOLDER, index_segment_size_bytes, INDEX_USED_END
    )
    whole = _without_gap(names, data_starts, segment_size_bytes)
    index_whole = _without_gap(index_names, index_starts, index_segment_size_bytes)
    with contextlib.ExitStack() as undo:
        data = SegmentList(folder / disk.DATA_FOLDER, segment_size_bytes, whole)
        undo.callback(data.close)
        index = SegmentList(folder / disk.INDEX_FOLDER, index_segment_size_bytes, index_whole)
        undo.callback(index.close)
        found = sound_part(LogFiles(data, index), checkpoint)
        log_is_sound = found.is_whole and whole == names
        index_is_sound = index_whole == index_names and _can_be_read(index)
    lost = front_is_lost or not _memberships_can_be_read(folder)
    log_is_sound = log_is_sound and not lost
    end = found.end if log_is_sound else found.kept_end
    kept = names if log_is_sound else [start for start in whole if start < found.kept_pos]
    kept = [] if lost else kept
    wrote = bool(names) or (checkpoint is not None and checkpoint.end_index >= 0)
    return Survey(
        log_is_sound=log_is_sound,
        index_is_sound=index_is_sound,
        hard_state=_hard_state(folder, max(end.term, 1 if wrote else -1)),
        end_index=end.index - 1 if kept else -1,
        end_term=end.term if kept else -1,
        lost_names=tuple(disk.file_name(start) for start in reversed(names[len(kept) :])),
        checkpoint=checkpoint,
        front_is_lost=lost,
    )


def set_aside_log(folder: Path, found: Survey, *, verdict: str, moment: str) -> HardState:
    """Keep the sound part of a log, and make its member join; blocks. Return its term and vote.

    Raises StoreError, or StoreFullError if there is no room for a folder; no data is lost then.
    """
    known = found.hard_state or HardState(term=0, vote_for=None)
    term = max(known.term, found.end_term)
    joining = HardState(term=term, vote_for=known.vote_for, joining=True)
    durable_index = found.checkpoint.end_index if found.checkpoint else -1
    first_index = found.end_index + 1
    aside = ballast.spend(
        folder, lambda: _make_folder(folder, moment, first_index, durable_index, verdict)
    )
    if found.hard_state is None:
        with contextlib.suppress(OSError):  # a copy for the administrator, if it can be read
            shutil.copyfile(folder / hard_state.FILE_NAME, aside / hard_state.FILE_NAME)
    try:
        hard_state.save_hard_state(folder, joining)
    except StoreError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if not found.log_is_sound:
        try:
            _move_log(folder, found, aside)
        except StoreError:
            with contextlib.suppress(OSError):  # a repetition that moved nothing must not count
                if os.listdir(aside) == [_HEALING]:
                    shutil.rmtree(aside)
            raise
    return joining


def _move_log(folder: Path, found: Survey, aside: Path) -> None:
    """Move what is not kept, and record the new end of the log."""
    _move(folder / disk.DATA_FOLDER, found.lost_names, aside)
    if found.front_is_lost and (folder / memberships_file.FILE_NAME).exists():
        _move(folder, (memberships_file.FILE_NAME,), aside)
    lowered = _lowered(folder, found)
    ballast.spend(folder, lambda: checkpoint_file.save_checkpoint(folder, lowered))


def set_aside_index(folder: Path, *, moment: str) -> None:
    """Set all index files aside, so that the next opening rebuilds them; blocks.

    Raises StoreError.
    """
    aside = ballast.spend(folder, lambda: _make_folder(folder, moment, -1, -1, "WrongIndex"))
    names = sorted((path.name for path in (folder / disk.INDEX_FOLDER).iterdir()), reverse=True)
    _move(folder / disk.INDEX_FOLDER, names, aside)


def list_set_aside(folder: Path) -> list[SetAside]:
    """Return the folders of damaged files that still exist, oldest first."""
    return [_read(path) for path in sorted(folder.glob(f"{PREFIX}*")) if path.is_dir()]


def delete_newest_file(aside: SetAside) -> Path | None:
    """Delete the newest damaged file of a folder and return it; None if there is none. Blocks."""
    paths = sorted(path for path in aside.folder.iterdir() if path.name != _HEALING)
    if not paths:
        return None
    paths[-1].unlink()
    sync_folder(aside.folder)
    return paths[-1]


def delete(aside: SetAside) -> None:
    """Delete a folder of damaged files; blocks. Raises OSError."""
    while delete_newest_file(aside) is not None:
        pass
    (aside.folder / _HEALING).unlink(missing_ok=True)
    aside.folder.rmdir()
    sync_folder(aside.folder.parent)


def _without_gap(names: Sequence[int], whole: Sequence[int], file_size: int) -> list[int]:
    """Return the files up to the first gap, or the first one that was cut short."""
    first = names[0] if names else 0
    return [start for at, start in enumerate(whole) if start == first + at * file_size]


def _can_be_read(files: SegmentList) -> bool:
    try:
        for file in files.files:
            for begin, end in file.data_ranges(0):
                for at in range(begin, end, WINDOW_BYTES):
                    file.read(at, min(WINDOW_BYTES, end - at))
    except (StoreDamagedError, OSError):
        return False
    return True


def _memberships_can_be_read(folder: Path) -> bool:
    try:
        memberships_file.load(folder)
    except StoreDamagedError:
        return False
    return True


def _hard_state(folder: Path, end_term: int) -> HardState | None:
    """Load term and vote; None if they are damaged or older than `end_term`.

    All entries have a term of 1 or more, so a store with any entry has at least end_term 1.
    """
    try:
        return hard_state.load_hard_state(folder, end_term)
    except StoreDamagedError:
        return None


def _lowered(folder: Path, found: Survey) -> Checkpoint:
    """Return the checkpoint of the log that is kept."""
    if found.end_index < 0:
        return Checkpoint(end_index=-1, committed_index=-1)
    if found.checkpoint is None:
        return Checkpoint(end_index=found.end_index, committed_index=-1)
    committed_index = min(found.checkpoint.committed_index, found.end_index)
    membership_index = found.checkpoint.membership_index
    if membership_index is not None:
        saved = [entry.index for entry in memberships_file.load(folder)]
        membership_index = max((index for index in saved if index <= committed_index), default=-1)
    return replace(
        found.checkpoint,
        end_index=found.end_index,
        committed_index=committed_index,
        membership_index=membership_index,
    )


def _make_folder(
    folder: Path, moment: str, first_index: int, last_index: int, verdict: str
) -> Path:
    aside = folder / f"{PREFIX}{moment}"
    values = {_FIRST: first_index, _LAST: last_index, _VERDICT: verdict}
    try:
        aside.mkdir()
        write_properties(aside / _HEALING, values)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise disk_error(f"{aside}: cannot create the folder for damaged files", error) from error
    return aside


def _move(source: Path, names: Sequence[str], target: Path) -> None:
    """Move files to another folder under the same names, durably."""
    try:
        for name in names:
            os.rename(source / name, target / name)
    except OSError as error:
        raise StoreError(f"cannot move files of {source} to {target}: {error}") from error
    sync_folder(target)
    sync_folder(source)


def _read(folder: Path) -> SetAside:
    """Read the `healing` file of a folder; if a crash left none, the indexes are -1."""
    path = folder / _HEALING
    try:
        values = read_properties(path, (_FIRST, _LAST, _VERDICT))
        if values is None:
            return SetAside(folder=folder, first_index=-1, last_index=-1)
        return SetAside(
            folder=folder,
            first_index=parse_number(path, values, _FIRST, -1),
            last_index=parse_number(path, values, _LAST, -1),
        )
    except (StoreDamagedError, LaterFormatError):
        return SetAside(folder=folder, first_index=-1, last_index=-1)
