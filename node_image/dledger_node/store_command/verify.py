"""Check a whole store without changing it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dledger_formats.json_objects import FormatError
from dledger_formats.lock_holder import holder_of
from dledger_formats.log import disk, memberships
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.membership import MembershipEntry
from dledger_node.store.derived import memberships_file
from dledger_node.store.derived.membership_bodies import membership_of
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.small_files import checkpoint as checkpoint_file
from dledger_node.store.small_files import hard_state as hard_state_file
from dledger_node.store.small_files import lock as lock_file
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_node.store_command.findings import Finding, Kind
from dledger_node.store_command.index_check import IndexCheck
from dledger_node.store_command.log_folder import PAGE_BYTES, LogFolder, RawSegment, list_folder
from dledger_node.store_command.removed_front import finding, removed_front
from dledger_node.store_command.report import Report
from dledger_node.store_command.snapshot_check import check_snapshots
from dledger_node.store_command.walk import (
    MISSING_SEGMENT,
    UNREADABLE,
    Batch,
    LogWalk,
    Stop,
    first_cursor,
    resume_after,
)

TAIL_WINDOW_BYTES: Final = 8 << 20


def verify(folder: Path, on_progress: Callable[[int], object] = lambda pos: None) -> Report:
    """Read a whole store and report on it; `on_progress` receives the position in bytes.

    Changes nothing. Raises OSError if the folder cannot be read at all.
    """
    data, index = list_folder(folder / disk.DATA_FOLDER), list_folder(folder / disk.INDEX_FOLDER)
    report = Report(folder, data, index)
    _check_names(report)
    _load_checkpoint(report)
    _leave_out_removed(report)
    _load_memberships(report)
    _walk(report, on_progress)
    _load_hard_state(report)
    report.snapshots = check_snapshots(folder, report.begin_index, report.findings)
    if report.uncovered:
        report.findings.add(
            Finding(
                kind=Kind.NOT_COVERED,
                file=f"{disk.DATA_FOLDER}/",
                detail=f"{report.uncovered} entries have no checksum of their body; only a "
                "comparison of members can show damage to one of them",
            )
        )
    return report


def lock_holder(folder: Path) -> int | None:
    """Return the process that has the store open; takes no lock."""
    return holder_of(folder / lock_file.FILE_NAME)


def _check_names(report: Report) -> None:
    add = report.findings.add
    for log in (report.data, report.index):
        for name, reason in log.strange:
            file = f"{log.folder.name}/{name}"
            add(Finding(kind=Kind.STRANGE_FILE, file=file, detail=f"{reason}; move it away"))
    for before, after in report.data.gaps():
        detail = f"{after.path.name} follows {before.path.name}; the segments between are missing"
        add(Finding(kind=Kind.MISSING_SEGMENT, file=after.label, detail=detail))
    holder = lock_holder(report.folder)
    if holder is not None:
        detail = f"process {holder} has the store open; its last entries may be incomplete"
        add(Finding(kind=Kind.IN_USE, file=lock_file.FILE_NAME, detail=detail))
        return  # a running node always has spare segments
    for path in sorted(report.folder.glob("*.spare")):
        detail = "a spare segment, left by a killed process or in use in another container"
        add(Finding(kind=Kind.LEFT_BEHIND, file=path.name, detail=detail))


def _load_checkpoint(report: Report) -> None:
    report.checkpoint = checkpoint_file.load_checkpoint(report.folder)
    name = checkpoint_file.FILE_NAME
    if report.checkpoint is None and (report.folder / name).exists():
        detail = "the checkpoint cannot be read; a node ignores it and verifies the whole log"
        report.findings.add(Finding(kind=Kind.DAMAGED_CHECKPOINT, file=name, detail=detail))


def _leave_out_removed(report: Report) -> None:
    removed = removed_front(report.data, report.index, report.checkpoint)
    if removed:
        report.findings.add(finding(removed))
        kept = report.data.segments[len(removed) :]
        report.data = replace(report.data, segments=kept)


def _load_memberships(report: Report) -> None:
    """Check the file as a node does: it must hold the entry that the checkpoint names."""
    saved_index = report.checkpoint.membership_index if report.checkpoint else None
    must_exist = saved_index is not None and saved_index >= 0
    has_front = not report.data.segments or report.data.segments[0].start == 0
    if has_front and not must_exist:
        return
    try:
        saved = memberships_file.load(report.folder)
        detail = f"it lacks the membership of entry {saved_index}, which the checkpoint names"
        lacks = must_exist and all(entry.index != saved_index for entry in saved)
        report.membership = saved[-1] if saved else None
    except StoreDamagedError as error:
        lacks, detail = True, str(error)
    if lacks:
        name = memberships_file.FILE_NAME
        report.findings.add(Finding(kind=Kind.DAMAGED_MEMBERSHIPS, file=name, detail=detail))


def _load_hard_state(report: Report) -> None:
    name = hard_state_file.FILE_NAME
    try:
        report.hard_state = load_hard_state(report.folder, report.end_term)
    except StoreDamagedError as error:
        finding = Finding(kind=Kind.DAMAGED_HARD_STATE, file=name, detail=str(error))
        report.findings.add(finding)


def _walk(report: Report, on_progress: Callable[[int], object]) -> None:
    """Walk over all sound entries, and judge each stop."""
    index_check = IndexCheck(report.index, report.findings)
    origin = report.data.segments[0].start if report.data.segments else 0
    start = first_cursor(report.data, report.checkpoint)
    if isinstance(start, Stop):
        cursor = resume_after(report.data, report.index, start)
        _judge_stop(report, start, start.pos, cursor)
        next_index = 0
    else:
        cursor, next_index = start, 0
    while cursor is not None:
        walk = LogWalk(report.data, cursor)
        for batch in walk:
            _count(report, batch)
            index_check.compare(batch)
            on_progress(walk.end.pos - origin)
        stop, next_index = walk.stop, walk.end.index
        torn = report.checkpoint is not None and stop.index > report.checkpoint.end_index
        cursor = None if torn else resume_after(report.data, report.index, stop)
        _judge_stop(report, stop, walk.end.pos, cursor)
    index_check.finish(next_index - 1)
    on_progress(report.data.bytes_total)


def _count(report: Report, batch: Batch) -> None:
    last = report.runs[-1] if report.runs else None
    if last is not None and (last[1], last[2]) == (batch.first_index - 1, batch.term):
        report.runs[-1] = (last[0], batch.last_index, batch.term)
    else:
        report.runs.append((batch.first_index, batch.last_index, batch.term))
    at = 0
    while at < len(batch.data):
        header = disk.unpack_header(batch.data, at)
        report.uncovered += header.body_crc == 0 and header.body_size > 0
        if memberships.is_membership(header.magic, header.channel):
            _note_membership(report, header.index, batch.data[at:][ENTRY_HEADER_SIZE : header.size])
        at += header.size


def _note_membership(report: Report, index: int, body: memoryview) -> None:
    try:
        report.membership = MembershipEntry(index, membership_of(body))
    except FormatError as error:
        report.findings.add(
            Finding(
                kind=Kind.UNKNOWN_MEMBERSHIP,
                file=f"{disk.DATA_FOLDER}/",
                first_index=index,
                last_index=index,
                detail=f"{error}; use the version that wrote it",
            )
        )


def _judge_stop(report: Report, stop: Stop, end_pos: int, following: Cursor | None) -> None:
    """Report a stop as a torn tail or as damage, by the rules of recovery.

    `end_pos` is where the last sound entry ends; a blank may lie between it and the stop.
    """
    durable_index = report.checkpoint.end_index if report.checkpoint is not None else -1
    segment = report.data.segment_at(stop.pos)
    label = segment.label if segment is not None else f"{disk.DATA_FOLDER}/"
    byte = stop.pos - segment.start if segment is not None else None
    if following is None and stop.index > durable_index:
        report.tail_bytes = _used_bytes(report.data, end_pos)
        if report.tail_bytes:
            reason = f"{stop.reason}: {stop.detail}" if stop.reason else "zeros, then more bytes"
            detail = (
                f"{report.tail_bytes} bytes after entry {stop.index - 1} are not sound entries "
                f"({reason}); a crash leaves such a tail, and a node cuts it when it starts"
            )
            report.findings.add(
                Finding(kind=Kind.TORN_TAIL, file=label, byte=byte, first_index=stop.index,
                        detail=detail)
            )  # fmt: skip
        return
    last = following.index - 1 if following is not None else durable_index
    if following is None and not stop.reason:
        kind, reason = Kind.LOST_TAIL, "the entries are missing"
    elif stop.reason == UNREADABLE:
        kind, reason = Kind.UNREADABLE, stop.detail
    else:
        kind, reason = Kind.DAMAGED_ENTRIES, f"{stop.reason}: {stop.detail}".removesuffix(": ")
    if stop.reason == MISSING_SEGMENT:
        reason = "their segment is missing"
    if not stop.reason and following is not None:
        reason = "zeros instead of an entry"
    report.findings.add(
        Finding(
            kind=kind,
            file=label,
            byte=byte,
            first_index=max(stop.index, 0),
            last_index=max(last, stop.index, 0),
            detail=f"{reason}; {_proof(report, following)}. The other members have these entries: "
            "replace this member",
        )
    )


def _proof(report: Report, following: Cursor | None) -> str:
    if following is not None:
        return f"the later entry {following.index} is sound"
    assert report.checkpoint is not None
    return f"the checkpoint says that entries up to {report.checkpoint.end_index} were durable"


def _used_bytes(data: LogFolder, pos: int) -> int:
    """Count the bytes from `pos` to the last non-zero byte."""
    used_end = pos
    for segment in data.segments:
        if segment.end > pos:
            used_end = max(used_end, _used_end(segment, max(0, pos - segment.start)))
    return used_end - pos


def _used_end(segment: RawSegment, at: int) -> int:
    used = at
    while at < segment.size:
        raw = segment.read(at, TAIL_WINDOW_BYTES)
        left = raw.rstrip(b"\0")
        if left:
            used = at + len(left)
        at += max(len(raw), PAGE_BYTES)
    return segment.start + used
