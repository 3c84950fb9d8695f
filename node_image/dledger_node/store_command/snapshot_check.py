"""Check the snapshots of a state, and whether the log continues after them."""

from pathlib import Path

from dledger_node.store.snapshots import snapshots
from dledger_node.store_command.findings import Finding, Findings, Kind


def check_snapshots(folder: Path, begin_index: int, findings: Findings) -> list[int]:
    """Check the snapshots of a store; return the last included index of each sound one.

    A store without any snapshot may have no state, so none is missing then.
    """
    top = folder / snapshots.FOLDER_NAME
    if not top.is_dir():
        return []
    held, damaged = snapshots.list_snapshots(top)
    for index, reason in sorted(damaged.items()):
        findings.add(
            Finding(
                kind=Kind.DAMAGED_SNAPSHOT,
                file=f"{top.name}/snapshot_{index}/",
                detail=f"{reason}; a node uses another snapshot or the log instead, if it can",
                last_index=index,
            )
        )
    for name in snapshots.UNFINISHED:
        if (top / name).exists():
            detail = "left by a killed process, or in use by a running one"
            findings.add(Finding(kind=Kind.LEFT_BEHIND, file=f"{top.name}/{name}/", detail=detail))
    sound = [meta.last_included_index for meta in held]
    if begin_index > 0 and (sound or damaged) and max(sound, default=-1) < begin_index - 1:
        detail = (
            f"the log begins with entry {begin_index}, but no sound snapshot includes all entries "
            "before it: a node with a state machine refuses to start. The other members have the "
            "state"
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
