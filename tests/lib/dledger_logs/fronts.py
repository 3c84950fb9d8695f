"""What members report about the front of their log: removals, retention and snapshots."""

from collections.abc import Sequence
from dataclasses import replace

from dledger_formats.http.retention import (
    HeldSnapshot,
    Removal,
    RemovalRule,
    RetentionPolicy,
    RetentionState,
)
from dledger_formats.http.status import Manifest

KEEP_ALL = RetentionPolicy(
    reserved_ms=None,
    delete_hours=[4],
    check_expired_percent=70,
    force_clean_percent=85,
    bytes_max=None,
)
HIGH = 1 << 40
NOW_MS = 1_700_000_000_000


def by_rule(
    first_index: int, last_index: int, rule: RemovalRule = RemovalRule.SIZE, **known: object
) -> Removal:
    """Return a removal that was allowed, unless `known` says otherwise."""
    told: dict[str, object] = {
        "removed_at_ms": NOW_MS,
        "committed_index": HIGH,
        "held_by_all_index": HIGH,
        **known,
    }
    return Removal(
        first_index=first_index,
        last_index=last_index,
        rule=rule,
        **told,  # type: ignore[arg-type]
    )


def retention(removals: Sequence[Removal] = (), **known: object) -> RetentionState:
    """Return the state of a member that keeps everything, unless `known` says otherwise."""
    told: dict[str, object] = {
        "policy": KEEP_ALL,
        "now_ms": NOW_MS,
        "utc_offset_s": 0,
        "used_percent": 10,
        "log_bytes": 0,
        "committed_index": HIGH,
        "applied_index": -1,
        "covered_index": None,
        "held_by_all_index": HIGH,
        **known,
    }
    return RetentionState(removals=list(removals), **told)  # type: ignore[arg-type]


def with_retention(said: Manifest, *removals: Removal, **known: object) -> Manifest:
    """Return a manifest that reports this about the front of its log."""
    return replace(said, retention=retention(removals, **known))


def snapshots(*last_included: int) -> list[HeldSnapshot]:
    """Return sound snapshots that end with these entries."""
    return [
        HeldSnapshot(last_included_index=index, last_included_term=1, data_bytes=8, data_crc32=0)
        for index in last_included
    ]
