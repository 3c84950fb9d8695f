"""Human-readable explanations of findings, with advice on what to do."""

from typing import Final

_REBUILD: Final = "rebuild the member from the others, unless too_few_copies is reported"

EXPLANATIONS: Final = {
    "bad_magic": f"the header does not start with an entry's magic number; {_REBUILD}",
    "bad_size": f"the sizes in the header are wrong; {_REBUILD}",
    "bad_index": f"the index in the header is wrong; {_REBUILD}",
    "bad_pos": f"the position in the header does not fit its neighbors'; {_REBUILD}",
    "bad_body_crc": f"the body does not match its checksum; {_REBUILD}",
    "bad_chain_crc": f"the header does not match its checksum; {_REBUILD}",
    "lost_entry": f"no entry was found where one should be; {_REBUILD}",
    "short_file": f"the data file is shorter than its manifest says; {_REBUILD}",
    "term_back": f"the term is lower than the previous entry's; {_REBUILD}",
    "missing_segment": f"the data file is missing; {_REBUILD}",
    "missing_entries": f"the member reports them as committed but does not hold them; {_REBUILD}",
    "repeated_entries": f"the indexes occur twice; {_REBUILD}",
    "differs_from_majority": (
        "a majority of the group holds different entries; keep a copy of the member's volume, and "
        f"{_REBUILD}"
    ),
    "no_majority": (
        "hold different entries, and no version is on a majority of the group; the audit cannot "
        "tell which version is right: change nothing, and keep copies of all volumes"
    ),
    "too_few_copies": (
        "fewer than a majority of the group hold them intact, so the next failure may lose them; "
        "save them before you change anything"
    ),
    "index_file_differs": "the index file is wrong; a restart of the member rebuilds it",
    "unreadable": "the member did not serve them; check that it is running, and audit again",
    "no_crc": "no checksum covers them, so only a comparison of members can detect damage",
}


def explain(check: str, entries: int, members: str = "") -> str:
    """Describe a finding and the number of entries; `members` lists the members it concerns."""
    count = "1 entry" if entries == 1 else f"{entries:,} entries"
    return f"{count}: {members}{' ' if members else ''}{EXPLANATIONS[check]}"
