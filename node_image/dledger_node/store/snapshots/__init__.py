"""Snapshots of a state machine: `snapshot/snapshot_<lastIncludedIndex>/{snapshot_meta,data}`."""
