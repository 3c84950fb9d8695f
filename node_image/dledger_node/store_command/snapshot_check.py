"""Whether snapshots of a state are what was written, and whether the log goes on behind them."""

from pathlib import Path

from dledger_node.store.snapshots import snapshots
from dledger_node.store_command.findings import Finding, Findings, Kind


def check_snapshots(folder: Path, begin_index: int, findings: Findings) -> list[int]:
    """Judge those of a store's folder; returns the last included index of each sound one.

    Where no snapshot was ever taken there may be no state, so nothing is missed.
    """
    top = folder / snapshots.FOLDER_NAME
    if not top.is_dir():
        return []
    held, damaged = snapshots.look(top)
    for index, reason in sorted(damaged.items()):
        findings.add(
            Finding(
                kind=Kind.DAMAGED_SNAPSHOT,
                file=f"{top.name}/snapshot_{index}/",
                detail=f"{reason}; a node does without it, if it can",
                last_index=index,
            )
        )
    for name in snapshots.UNFINISHED:
        if (top / name).exists():
            detail = "of a process that was killed, or is running"
            findings.add(Finding(kind=Kind.LEFT_BEHIND, file=f"{top.name}/{name}/", detail=detail))
    sound = [meta.last_included_index for meta in held]
    if begin_index > 0 and (sound or damaged) and max(sound, default=-1) < begin_index - 1:
        detail = (
            f"the log begins with entry {begin_index}, and no sound snapshot includes all before: "
            "a node with a state machine refuses to start. The other members have both"
        )
        findings.add(
            Finding(
                kind=Kind.MISSING_STATE,
                file=f"{top.name}/",
                detail=detail,
                last_index=begin_index - 1,
            )
        )
    return sound
