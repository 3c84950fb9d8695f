"""`dledger-node seed ARCHIVE`: begin a member's folder with the log of an archive.

The command runs before the member, with the same settings, for instance in an init container. It
copies nothing, and the member may start, if the group is not new, if the folder holds a log, or if
another member says that the group has begun; then this member gets its log from the others.
Otherwise it copies the archive, or fails, and then the member must not start: a group that was to
begin with an archive never begins empty. Nor does it begin with another archive that an earlier
group of its name left on the volume: that is an error while no member says that the group has
begun.

The copy is written beside the folder and renamed, so a crash leaves no partial copy. The member
starts as a joining one (`raft.joining`), so a copy made in error gives it no vote.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dledger_formats.command_lines import Parser
from dledger_formats.folders import sync_folder
from dledger_formats.http.status import NodeStatus, is_stranger
from dledger_formats.log import archives, disk, properties
from dledger_formats.log.archives import ArchiveInfo
from dledger_formats.seeding import (
    SeedError,
    check_front,
    check_members,
    copy_log,
    read_archive,
)
from dledger_formats.settings import GroupState, NodeSettings, SettingsError
from dledger_node.config import store_folder
from dledger_node.errors import StoreError
from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.store.small_files.hard_state import load_hard_state, seed_values
from dledger_node.store_command.others import ask_statuses
from dledger_node.store_command.verify import lock_holder

EXIT_REFUSED: Final = 1
EXIT_SETTINGS: Final = 2
CURRTERM: Final = "currterm"
_REMOVE: Final = (
    "If no member of the group has a log, delete the group and its volume claims, and create it "
    "again"
)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Seed the folder of the member that the environment describes; return the exit code."""
    parser = Parser(
        prog="dledger-node seed",
        description="Begin the folder of a new group's member with the log of an archive that "
        "`dledger-audit compact` wrote. The settings are those of the member. Copies nothing if "
        "the group has begun, or the folder holds a log.",
        epilog="Exit codes: 0 copied, or nothing to do; 1 the archive cannot be used, and the "
        "member must not start; 2 a wrong setting.",
    )
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="folder with archive.json")
    parser.add_argument(
        "--group", help="group that the archive was made of (default: the member's own group)"
    )
    parser.add_argument(
        "--copy-sha256", default="", help="the archive's copySha256 (default: any archive)"
    )
    options = parser.parse_args(arguments)
    try:
        settings = NodeSettings.from_environment(environment)
    except SettingsError as error:
        _say(f"dledger-node seed: {error}")
        return EXIT_SETTINGS
    try:
        done = seed(
            settings,
            options.archive,
            source_group=options.group or settings.group,
            copy_sha256=options.copy_sha256,
        )
    except (SeedError, StoreError, OSError) as error:
        _say(f"the group cannot begin with its archive: {error}")
        return EXIT_REFUSED
    _say(done)
    return 0


def seed(settings: NodeSettings, archive: Path, *, source_group: str, copy_sha256: str) -> str:
    """Copy the archive to the member's folder if that is due; return what was done, in words.

    `source_group` is the group that the archive must have been made of; `copy_sha256` names the
    one archive to take, or is empty. Raises SeedError, StoreError, or OSError.
    """
    folder = store_folder(settings)
    if reason := _why_not(settings, folder):
        return f"nothing was copied: {reason}"
    if folder.exists() and _holds_log(folder):
        _check_held(settings, folder, archive, copy_sha256)
        return f"nothing was copied: {folder} holds a log already"
    others = _others(settings)
    # Checked before the archive is read: it may be gone once the group has a leader.
    if reason := _why_led(others):
        return f"nothing was copied: {reason}; this member gets its log from the others"
    info = read_archive(archive)
    end = LogEnd(info.end_term, info.end_index)
    if reason := _why_begun(others):
        return f"nothing was copied: {reason}; this member gets its log from the others"
    _check_others(others, archive, info)
    _check_folder(folder, end)
    _check(settings, archive, info, source_group, copy_sha256)
    copy = folder.with_name(f"seeding-{settings.self_id}")
    old = folder.with_name(f"blank-{settings.self_id}")
    for left in (copy, old):
        shutil.rmtree(left, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _check_room(folder.parent, info)
    copy_log(archive, info, copy, info.small_files() | {CURRTERM: _currterm(info)})
    if folder.exists():
        folder.rename(old)
    copy.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
    return (
        f"{folder} begins with entries {info.first_index} to {info.end_index} of the group "
        f"{info.group}, from {archive}"
    )


def _why_not(settings: NodeSettings, folder: Path) -> str:
    """Return why this member must not begin with any archive; empty if it may. Raises SeedError."""
    if settings.initial_group_state is not GroupState.NEW:
        return f"the group {settings.group} is not new"
    if settings.self_id not in settings.peers:
        return f"{settings.self_id} is not one of the first voters"
    if folder.exists() and (holder := lock_holder(folder)) is not None:
        raise SeedError(f"{folder} is in use by process {holder}: stop that process")
    return ""


def _holds_log(folder: Path) -> bool:
    """Return whether a member's folder has an entry, damaged or not."""
    return any(
        _begins_with_entry(path)
        for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER)
        for path in (folder / name).glob("*")
    )


def _begins_with_entry(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(disk.INDEX_UNIT_SIZE))


def _check_held(settings: NodeSettings, folder: Path, archive: Path, copy_sha256: str) -> None:
    """Raise SeedError if the folder holds only the log of another archive than the wanted one.

    That is no error if a member says that the group has begun.
    """
    try:
        state = load_hard_state(folder)
    except StoreError:
        return  # the member reports the damage itself, and does not vote
    held = state.seed
    # A leader has a later term than the archive, and a member adopts it before any entry.
    if held is None or not state.joining or state.term != held.end.term:
        return
    wanted = copy_sha256 or _digest_of(archive)
    if wanted in ("", held.sha256):
        return
    others = _others(settings)
    if _why_led(others) or _why_begun(others):
        return
    raise SeedError(
        f"{folder} holds the log of another archive: its copySha256 is {held.sha256}, and that of "
        f"the wanted one is {wanted}. Restore the one that it has, if that is right. If no "
        "member has a later log, delete the group and its volume claims, and create it again"
    )


def _digest_of(archive: Path) -> str:
    """Return the copySha256 of an archive; empty if it cannot be read, since it may be gone."""
    try:
        return read_archive(archive).copy_sha256
    except SeedError:
        return ""


def _others(settings: NodeSettings) -> list[NodeStatus]:
    """Return the statuses of the other members of this group that answer."""
    pages = {
        one: settings.http_address_of(one)
        for one in settings.known_peers
        if one != settings.self_id
    }
    statuses = asyncio.run(ask_statuses(pages))
    return [
        statuses[one]
        for one in sorted(statuses)
        if not is_stranger(statuses[one], settings.group, settings.group_identity)
    ]


def _why_led(others: Sequence[NodeStatus]) -> str:
    """Return which member knows a leader; empty if none does. A group with a leader has begun."""
    led = [each for each in others if each.leader_id is not None]
    return f"{led[0].self_id} says that {led[0].leader_id} leads the group" if led else ""


def _why_begun(others: Sequence[NodeStatus]) -> str:
    """Return which member says that the group has begun; empty if none does."""
    for status in others:
        if status.ledger_end_index >= 0 and not status.seed_sha256:
            return (
                f"{status.self_id} says that the group has begun: it is in term {status.term}, and "
                f"its log ends with entry {status.ledger_end_index}"
            )
    return ""


def _check_others(others: Sequence[NodeStatus], archive: Path, info: ArchiveInfo) -> None:
    """Raise SeedError if another member began with another archive: the group cannot begin."""
    for status in others:
        if status.seed_sha256 not in ("", info.copy_sha256):
            raise SeedError(
                f"{status.self_id} began with another archive: its copySha256 is "
                f"{status.seed_sha256}, and that of {archive} is {info.copy_sha256}. Restore that "
                "archive; or delete the group and its new volume claims, and create it again"
            )


def _check_folder(folder: Path, end: LogEnd) -> None:
    """Raise SeedError if the member of this folder without entries may have promised something."""
    if not folder.exists():
        return
    try:
        state = load_hard_state(folder)
    except StoreError as error:
        raise SeedError(f"{error}. {_REMOVE}") from error
    if not state.joining or state.vote_for is not None:
        raise SeedError(f"{folder} has no log, but belongs to a member that may vote. {_REMOVE}")
    # A member without a log learns the archive's term from those that have begun with it.
    if state.term > end.term:
        raise SeedError(
            f"this member has heard of term {state.term}, and the archive ends with term "
            f"{end.term}: another member has a later log. Start that member. {_REMOVE}"
        )


def _check(
    settings: NodeSettings, archive: Path, info: ArchiveInfo, source_group: str, copy_sha256: str
) -> None:
    """Raise SeedError if the archive is not the one that is wanted, or does not fit the group."""
    if info.group_identity and info.group_identity == settings.group_identity:
        raise SeedError(
            f"{archive} was made of this very group: the volume claims keep its identity, and its "
            "members and producers may still live. If no volume has a later log, delete the group "
            "and its volume claims, and create it again: `kubectl delete dlg "
            f"{settings.group}`, `kubectl delete pvc -l dledger.io/group={settings.group}` "
            "(without the operator: another DLEDGER_GROUP_IDENTITY)"
        )
    if info.group != source_group:
        raise SeedError(
            f"{archive} was made of the group {info.group}, and not of {source_group}: name the "
            "group that it was made of (spec.seed.group), if it is the right archive"
        )
    if copy_sha256 and info.copy_sha256 != copy_sha256:
        raise SeedError(
            f"{archive} is another archive than the one that is wanted: its copySha256 is "
            f"{info.copy_sha256}, and not {copy_sha256}"
        )
    if archives.digest_of(info.files) != info.copy_sha256:
        raise SeedError(f"{archive / archives.INFO_FILE} is damaged: restore the archive")
    check_members(archive, info, list(settings.peers))
    check_front(archive, info, settings.state_machine)
    sizes = (settings.segment_size_bytes, settings.index_segment_size_bytes)
    if (info.segment_bytes, info.index_segment_bytes) != sizes:
        raise SeedError(
            f"the segments of {archive} have {info.segment_bytes} bytes, and those of its index "
            f"{info.index_segment_bytes}; this group's have {sizes[0]} and {sizes[1]}: a group "
            "from this archive needs the same sizes (spec.log.segmentSize)"
        )


def _check_room(folder: Path, info: ArchiveInfo) -> None:
    """Raise SeedError if the volume has no room for the copy and the segment after it."""
    indexes = sum(file.name.startswith(disk.INDEX_FOLDER) for file in info.files)
    segments = len(info.files) - indexes
    needed = (segments + 1) * info.segment_bytes + (indexes + 1) * info.index_segment_bytes
    volume = os.statvfs(folder)
    free = volume.f_bavail * volume.f_frsize
    if free < needed:
        raise SeedError(
            f"the volume is too small for the archive: it has {free} bytes of room, and "
            f"{segments} segments, their index and the next segment need {needed}: make the volume "
            "larger (spec.storage.size)"
        )


def _currterm(info: ArchiveInfo) -> bytes:
    """Return the `currterm` of a member that may vote once all first voters have this archive."""
    seed = Seed(LogEnd(info.end_term, info.end_index), info.copy_sha256)
    state = {"voteLeader": "", "currTerm": info.end_term, "joining": "true", "flushed": "true"}
    return properties.encode(state | seed_values(seed))


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - the kubelet takes the last lines as the reason
