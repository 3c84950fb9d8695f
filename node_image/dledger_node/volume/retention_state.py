"""The state of retention, for its records and `/manifest`; no IO."""

import sys
import time

from dledger_formats.http.retention import (
    HeldSnapshot,
    Removal,
    RemovalRule,
    RetentionPolicy,
    RetentionState,
)
from dledger_node.state_machine.keeper import State
from dledger_node.store.log.removals import Grounds
from dledger_node.store.log.retention import Policy, Situation


def grounds_of(rule: RemovalRule, situation: Situation, *, is_forced: bool) -> Grounds:
    """Return what to record about a removal that was decided in this situation."""
    return Grounds(
        rule=rule,
        removed_at_ms=int(situation.now_s * 1000),
        is_forced=is_forced,
        committed_index=situation.committed_index,
        covered_index=_covered_index(situation),
        held_by_all_index=situation.held_by_all_index,
    )


def retention_state(
    policy: Policy, situation: Situation, state: State, removals: tuple[Removal, ...]
) -> RetentionState:
    """Return the state that `/manifest` reports to auditors."""
    snapshots = state.snapshots
    return RetentionState(
        policy=RetentionPolicy(
            reserved_ms=None if policy.reserved_s is None else int(policy.reserved_s * 1000),
            delete_hours=list(policy.delete_hours),
            check_expired_percent=policy.check_expired_percent,
            force_clean_percent=policy.force_clean_percent,
            bytes_max=policy.bytes_max,
        ),
        now_ms=int(situation.now_s * 1000),
        utc_offset_s=time.localtime(situation.now_s).tm_gmtoff,
        used_percent=situation.used_percent,
        log_bytes=situation.total_bytes,
        committed_index=situation.committed_index,
        applied_index=state.applied_index,
        covered_index=_covered_index(situation),
        held_by_all_index=situation.held_by_all_index,
        snapshots=[
            HeldSnapshot(
                last_included_index=meta.last_included_index,
                last_included_term=meta.last_included_term,
                data_bytes=meta.data_bytes,
                data_crc32=meta.data_crc32,
            )
            for meta in reversed(snapshots.newest_first if snapshots else ())
        ],
        damaged_snapshots=sorted(snapshots.damaged if snapshots else ()),
        removals=list(removals),
    )


def _covered_index(situation: Situation) -> int | None:
    return None if situation.covered_index == sys.maxsize else situation.covered_index
