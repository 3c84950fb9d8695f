"""What a check has found, in words for people, and what to do about it."""

from typing import Final

_REBUILD: Final = "unless too_few_copies is reported, rebuild the member from the others"

EXPLANATIONS: Final = {
    "bad_magic": f"the header does not begin an entry; {_REBUILD}",
    "bad_size": f"the header gives a wrong size; {_REBUILD}",
    "bad_index": f"the header gives another index; {_REBUILD}",
    "bad_pos": f"the header gives another position than its neighbours; {_REBUILD}",
    "bad_body_crc": f"the body does not match its checksum; {_REBUILD}",
    "bad_chain_crc": f"the header does not match its checksum; {_REBUILD}",
    "lost_entry": f"there is no entry where it should be; {_REBUILD}",
    "short_file": f"the file ends before it; {_REBUILD}",
    "term_back": f"the term is lower than that of the entry before; {_REBUILD}",
    "missing_segment": f"the data file is missing; {_REBUILD}",
    "missing_entries": f"the member calls them committed but does not hold them; {_REBUILD}",
    "repeated_entries": f"the indexes occur twice; {_REBUILD}",
    "differs_from_majority": (
        "a majority of the group holds other entries here; keep a copy of the member's volume, and "
        f"{_REBUILD}"
    ),
    "no_majority": (
        "hold different entries, and none of these is on a majority of the group; nobody can tell "
        "who is right: change nothing, and keep copies of all volumes"
    ),
    "too_few_copies": (
        "fewer than a majority of the group hold them intact, so the next failure may lose them; "
        "change nothing before they are saved"
    ),
    "index_file_differs": "the index file says otherwise; a restart of the member rebuilds it",
    "unreadable": "the member did not serve them; see that it runs, and audit again",
    "no_crc": "no checksum covers them, so only comparing members can find damage in them",
}


def explain(check: str, entries: int, who: str = "") -> str:
    """Tell how many entries a finding is about, and what it means; `who` names several members."""
    count = "1 entry" if entries == 1 else f"{entries:,} entries"
    return f"{count}: {who}{' ' if who else ''}{EXPLANATIONS[check]}"
