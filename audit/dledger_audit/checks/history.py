"""Compare what was read with what earlier audits read: what was committed never changes."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from dledger_audit.checks.electorate import is_counted
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.history.memory import CHUNK, Memory, chunk_starts, whole_chunks
from dledger_audit.verdict import (
    CRITICAL,
    HISTORY_BEGIN,
    HISTORY_CHANGED,
    HISTORY_LOST,
    HISTORY_TERM,
    WARNING,
)
from dledger_formats.http.status import Manifest


def compared(memory: Memory, read: pa.Table) -> dict[tuple[str, int], bool]:
    """Return whether each known chunk that was read whole and sound is as it was, by its member
    and first index. `read` are rows of DIGEST_SCHEMA.
    """
    before, now = _digests(memory.rows), _digests(whole_chunks(read))
    return {at: before[at] == digest for at, digest in now.items() if at in before}


def changed(
    memory: Memory, is_as_before: Mapping[tuple[str, int], bool], manifests: Mapping[str, Manifest]
) -> Iterator[Run]:
    """Yield what contradicts the earlier audits: entries, and what members say of themselves.

    `is_as_before` is what `compared` returns. Members that join or whose storage is not sound are
    not judged by what they say; the entries that they have are.
    """
    for (member, start), is_same in is_as_before.items():
        if not is_same:
            yield run_of(HISTORY_CHANGED, CRITICAL, start, start + CHUNK - 1, member=member)
    for member, manifest in manifests.items():
        if is_counted(manifest.status):
            yield from _gone_back(memory, member, manifest)


def _gone_back(memory: Memory, member: str, manifest: Manifest) -> Iterator[Run]:
    before, status = memory.said.get(member), manifest.status
    if before is None:
        return
    if status.ledger_end_index < before.committed_index:
        first = max(0, status.ledger_end_index + 1)
        yield run_of(HISTORY_LOST, CRITICAL, first, before.committed_index, member=member)
    if status.term < before.term:
        yield Run(
            check=HISTORY_TERM, severity=CRITICAL, member=member, first_index=-1, last_index=-1,
            entries=0, reason=f"it was {before.term}, and is {status.term}",
        )  # fmt: skip
    begin = max(0, status.ledger_begin_index)
    if status.committed_index >= 0 and begin < before.begin_index:
        yield run_of(HISTORY_BEGIN, WARNING, begin, before.begin_index - 1, member=member)


def _digests(rows: pa.Table) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return the digests of entries and chains, and how many entries have one, of each chunk."""
    found: dict[tuple[str, int], tuple[int, int, int]] = {}
    columns = (
        rows["member"].to_pylist(),
        chunk_starts(rows).tolist(),
        *(rows[name].to_pylist() for name in ("digest", "chain_digest", "covered")),
    )
    for member, start, digest, chain, covered in zip(*columns, strict=True):
        old = found.get((member, start), (0, 0, 0))
        found[member, start] = (old[0] ^ digest, old[1] ^ chain, old[2] + covered)
    return found
