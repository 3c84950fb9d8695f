"""Judge what replays of the log show: which snapshots are not the state that the log leads to.

Two chains of snapshots contradict each other if the log leads from one to a state that differs from
the other's. A chain that begins with the empty state is right. Otherwise, the snapshots of a
majority of the voters are right. Without a majority, the audit names the snapshots, and cannot say
which ones are right. Chains that meet again, because later entries set the same keys, are judged by
their snapshots before that.
"""

from collections.abc import Iterator, Sequence

from dledger_audit.checks.electorate import Electorate
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.snapshots.replay import Chain, Replayed, Version
from dledger_audit.verdict import CRITICAL, INFO, STATE_NOT_REPLAYED, WRONG_SNAPSHOT


def wrong_snapshots(replayed: Replayed, electorate: Electorate) -> Iterator[Run]:
    """Yield a run for each snapshot that is not the state that the log leads to."""
    if replayed.skipped:
        yield run_of(STATE_NOT_REPLAYED, INFO, -1, -1, reason=replayed.skipped)
    wrong: dict[Version, str] = {}
    unclear: dict[Version, str] = {}
    known = set[Version]()
    for chain in replayed.chains:
        if chain.root is None:
            wrong |= dict.fromkeys(chain.contradicted, _leads(chain))
            known = {*chain.versions, *chain.contradicted}
    for chain in replayed.chains:
        ours = _all_of(chain) - known
        for others in _against(chain, replayed.chains, known):
            before = ours - others
            if _decides(before, others - ours, electorate):
                wrong |= dict.fromkeys(others - ours, _leads(chain))
            elif _decides(others - ours, before, electorate):
                reason = "it and the log lead to other states than a majority of the voters has"
                wrong |= dict.fromkeys(before, reason)
            else:
                reason = f"{_leads(chain)}; one of the two is wrong"
                unclear |= dict.fromkeys(others - ours, reason)
    for version, reason in (unclear | wrong).items():
        for listed in version.holders:
            detail = f"snapshot_{listed.index}: {reason}"
            yield run_of(
                WRONG_SNAPSHOT, CRITICAL, listed.index, listed.index, member=listed.member,
                reason=detail,
            )  # fmt: skip


def proven(replayed: Replayed) -> set[tuple[int, bytes]]:
    """Return the index and digest of the states to which the log leads from its first entry."""
    return {
        (each.index, each.digest)
        for chain in replayed.chains
        if chain.root is None
        for each in chain.versions
    }


def _all_of(chain: Chain) -> set[Version]:
    return {*chain.versions, *([chain.root] if chain.root else [])}


def _against(chain: Chain, chains: Sequence[Chain], known: set[Version]) -> Iterator[set[Version]]:
    """Yield the sets of versions that contradict a chain, and not each other."""
    if chain.root is None or chain.root in known:
        return
    left = set(chain.contradicted) - known
    for other in chains:
        together = left & _all_of(other)
        if other is not chain and together:
            left -= together
            yield _all_of(other) - known
    for each in left:
        yield {each}


def _decides(versions: set[Version], against: set[Version], electorate: Electorate) -> bool:
    """Return whether a majority of the voters has these versions, and not the others."""
    return (
        len(_voters(versions, electorate))
        >= electorate.majority
        > len(_voters(against, electorate))
    )


def _voters(versions: set[Version], electorate: Electorate) -> set[str]:
    holders = {listed.member for each in versions for listed in each.holders}
    return holders & electorate.counted


def _leads(chain: Chain) -> str:
    if chain.root is None:
        return "the log from entry 0 leads to another state"
    members = ", ".join(sorted({listed.member for listed in chain.root.holders}))
    return f"snapshot_{chain.root.index} of {members} and the log lead to another state"
