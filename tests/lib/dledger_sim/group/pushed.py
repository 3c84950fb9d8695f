"""The entries in a push between simulated members."""

from dataclasses import dataclass
from typing import TypeVar

from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_sim.group.disk import SimDisk
from dledger_sim.judges.rot_rules import RotRules

Push = TypeVar("Push", AppendRequest, InstallSnapshotRequest)


@dataclass(frozen=True, slots=True)
class PushedEntries:
    """Terms and bodies of consecutive entries."""

    first_index: int
    entries: list[tuple[int, int]]


def filled(push: Push, disk: SimDisk, rules: RotRules) -> Push:
    """Read the entries of a push from the disk. Raises StoreDamagedError if one has rotted."""
    assert push.first_index >= disk.begin_index, f"{push} asks for what was removed"
    entries = disk.read(push.first_index, push.last_index + 1)
    assert len(entries) == push.last_index - push.first_index + 1
    rules.serves(push.sender, push.first_index, entries)
    pairs = [(entry.term, entry.body) for entry in entries]
    # No other code holds this message, and `dataclasses.replace` costs more than a step.
    object.__setattr__(push, "entries", PushedEntries(push.first_index, pairs))
    return push
