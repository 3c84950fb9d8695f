"""Human-readable explanations of findings, with advice on what to do."""

from typing import Final

REBUILD: Final = "a majority of the voters was read with these entries intact: rebuild the member"
KEEP: Final = (
    "no majority of the voters was read with these entries intact: keep a copy of the member's "
    "volume, and do not rebuild the member"
)

DAMAGE: Final = {
    "bad_magic": "the header does not start with an entry's magic number",
    "bad_size": "the sizes in the header are wrong",
    "bad_index": "the index in the header is wrong",
    "bad_pos": "the position in the header does not fit its neighbors'",
    "bad_body_crc": "the body does not match its checksum",
    "bad_chain_crc": "the header does not match its checksum",
    "lost_entry": "no entry was found where one should be",
    "short_file": "the data file is shorter than its manifest says",
    "term_back": "the term is lower than the previous entry's",
    "missing_segment": "the data file is missing",
    "missing_entries": "the member reports them as committed but does not hold them",
    "repeated_entries": "the indexes occur twice",
    "differs_from_majority": "a majority of the voters holds different entries",
    "disk_error": "the member lists the data file and cannot read them from its disk",
    "uncovered": "no checksum covers them, although others of their term are covered",
    "term_above": "the term is above the member's own, so it cannot have written them",
    "bad_noop": "a no-op has a body",
    "bad_membership": "the body of a membership entry is not a valid membership",
    "bad_blank": "the rest of the data file after this entry is not a blank",
    "removed": "they are missing before the log's first entry, and no rule explains that",
    "history_differs": (
        "the entries agree, but their chain CRCs do not, which cover everything before them: the "
        "members' histories before these entries differ"
    ),
}
"""What is wrong; the advice depends on whether the entries are intact elsewhere."""

OTHERS: Final = {
    "history_changed": (
        "some of these entries are not the ones that an earlier audit read; what was committed "
        "never changes: keep copies of all volumes, and report a bug"
    ),
    "history_lost": (
        "the member's log ends before them, and an earlier audit saw them committed there; keep a "
        "copy of its volume before you rebuild the member"
    ),
    "history_begin": (
        "the member's log begins with them, and at an earlier audit it began after them; old "
        "files came back, or it took the log of another member"
    ),
    "changed": (
        "held different entries when they were read first, and a second reading did not show "
        "which; audit again when these members are steady"
    ),
    "no_majority": (
        "hold different entries, and no version is on a majority of the voters; the audit cannot "
        "tell which version is right: change nothing, and keep copies of all volumes"
    ),
    "too_few_copies": (
        "fewer than a majority of the voters hold them intact, so the next failure may lose them; "
        "save them before you change anything"
    ),
    "index_file_differs": "the index file is wrong; a restart of the member rebuilds it",
    "bad_index_unit": (
        "the index file is wrong, so far from the end of the log that a restart does not read it; "
        "stop the member, empty its folder `index`, and start it"
    ),
    "unknown_entry": (
        "the checksums are right, but the kind of entry is not known; audit with the version that "
        "wrote it"
    ),
    "unreadable": "the member did not serve them; check that it is running, and audit again",
    "unrecorded": "they were removed from the front of the log, and the rule is not known",
    "no_crc": "no checksum covers them, so only a comparison of members can detect damage",
}

HISTORY: Final = {
    "history_term": (
        "the member's term is lower than at an earlier audit ({reason}), so it may vote twice in "
        "one term; stop it, and replace it with an empty volume"
    ),
    "history_not_kept": (
        "what was read could not be kept for later audits, which compare with it: {reason}; mend "
        "that, and audit again"
    ),
    "known_before": (
        "{entries:,} entries of the members' logs were not read again, because earlier audits read "
        "them; an audit without --since-last reads everything"
    ),
}
"""Findings that concern no range of entries."""

SNAPSHOTS: Final = {
    "bad_snapshot": (
        "the snapshot is damaged; check the member's disk, and audit again when the member has "
        "saved another one, after DLEDGER_SNAPSHOT_THRESHOLD more entries"
    ),
    "snapshot_term": (
        "the snapshot does not end with the log's entry; keep a copy of the member's volume, "
        "rebuild the member, and report a bug"
    ),
    "snapshot_ahead": (
        "the snapshot includes entries that no log has; keep copies of all volumes, and find the "
        "volume that has the entries"
    ),
    "snapshot_differs": (
        "the members' states differ; keep copies of the volumes, rebuild a member that a majority "
        "contradicts, and report a bug"
    ),
    "wrong_snapshot": (
        "the snapshot is not the state that the log leads to; keep copies of all volumes, rebuild "
        "the members that the finding calls wrong, and report a bug"
    ),
    "state_not_replayed": (
        "the log was not replayed between the snapshots; their bytes and places were checked"
    ),
    "no_snapshot": (
        "these entries were removed, and no sound snapshot is left that includes them; the member "
        "has the state only in memory: do not restart it until it has saved another snapshot"
    ),
    "snapshot_unread": (
        "the snapshot was not read; check that the member is running, and audit again"
    ),
    "snapshot_not_served": "the snapshot was not checked, since the member's release serves none",
}
"""What is wrong with a snapshot, and what to do."""


def explain(
    check: str,
    entries: int,
    *,
    members: str = "",
    is_sparse: bool = False,
    is_elsewhere: bool = True,
    reason: str = "",
) -> str:
    """Describe a finding and the number of entries.

    `members` lists the members that it concerns; `is_sparse` says that the range holds other
    entries too; `is_elsewhere` that a majority was read with the entries intact; `reason` is what
    was observed.
    """
    if check in SNAPSHOTS:
        what, semicolon, advice = SNAPSHOTS[check].partition(";")
        return f"{what}{f' ({reason})' if reason else ''}{semicolon}{advice}"
    if check in HISTORY:
        return HISTORY[check].format(reason=reason, entries=entries)
    count = "1 entry" if entries == 1 else f"{entries:,} entries"
    if is_sparse:
        count += " in this range"
    subject = f"{count}: {members}{' ' if members else ''}"
    observed = f" ({reason})" if reason else ""
    if check in OTHERS:
        what, semicolon, advice = OTHERS[check].partition(";")
        return f"{subject}{what}{observed}{semicolon}{advice}"
    return f"{subject}{DAMAGE[check]}{observed}; {REBUILD if is_elsewhere else KEEP}"
