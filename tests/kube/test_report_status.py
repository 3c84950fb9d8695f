"""The content of a group's status, and how often it is written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.http.status import FlushDiskType
from dledger_kube.objects import NOW, group_body, leader_status, member, node_status, observed_group
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.status import (
    StatusReporter,
    build_status,
    leader_change_to_json,
    leader_changes_from_json,
)
from dledger_operator.observed_state import Leader, LeaderChange, ObservedGroup, ObservedMember

CHANGE = LeaderChange(
    from_member="n0", to_member="n1", term=7, reason="LeaderLost", at=NOW,
    detect_s=0.12, elect_s=0.31, relabel_s=0.05, endpoints_s=0.06,
)  # fmt: skip

ASYNC = member(2, status=node_status("n2", flush_disk_type=FlushDiskType.ASYNC_FLUSH))


def status(
    of: ObservedGroup | None = None,
    previous: Mapping[str, Any] | None = None,
    now: Any = NOW,
    changes: list[LeaderChange] | None = None,
) -> Manifest:
    history = LeaderHistory([CHANGE] if changes is None else changes)
    return build_status(
        of or observed_group(), history, generation=4, previous=previous or {}, now=now
    )


def test_the_status_of_a_healthy_group() -> None:
    built = status()

    assert built["observedGeneration"] == 4
    assert (built["replicas"], built["readyReplicas"], built["membersReady"]) == (3, 3, "3/3")
    assert (built["selector"], built["toleratedFailures"]) == ("dledger.io/group=flights", 1)
    assert built["leader"] == {
        "member": "n1",
        "pod": "flights-1",
        "address": "flights-1.flights-nodes.air.svc:40911",
        "term": 7,
        "since": "2026-01-01T00:00:00Z",
    }
    assert built["leaderChanges"] == [
        {
            "from": "n0", "to": "n1", "term": 7, "reason": "LeaderLost",
            "at": "2026-01-01T00:00:00Z", "detectSeconds": 0.12, "electSeconds": 0.31,
            "relabelSeconds": 0.05, "endpointsSeconds": 0.06,
        }
    ]  # fmt: skip


def test_no_index_of_the_log_is_in_the_status() -> None:
    long, short = status(grown(336_775)), status(grown(99))

    assert long == short


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member(0), member(1)], "SyncFlush"),
        ([member(0), member(1), ASYNC], "AsyncFlush (1), SyncFlush (2)"),
        ([ASYNC, member(1, status=None)], "AsyncFlush"),
        ([member(1, status=None)], None),
    ],
)
def test_the_flush_type_is_what_the_members_say(
    members: list[ObservedMember], expected: str | None
) -> None:
    assert status(observed_group(members=members)).get("flushDiskType") == expected


def test_a_member_is_shown_with_what_its_pod_runs() -> None:
    running = member(0, image="node:1", revision="abc", behind="image node:1 to node:2")

    (shown,) = status(observed_group(members=[running]))["members"]

    assert (shown["image"], shown["revision"]) == ("node:1", "abc")
    assert shown["behind"] == "image node:1 to node:2"


def test_a_silent_member_is_shown_without_its_own_status() -> None:
    lost = member(2, ready=False, reason="no answer", status=None)
    shown = status(observed_group(members=(member(0), member(1), lost)))["members"][2]

    assert shown == {
        "id": "n2", "pod": "flights-2", "role": "slave", "membership": "Voter", "ready": False,
    }  # fmt: skip


def test_a_status_without_a_leader_has_no_leader() -> None:
    built = status(observed_group(leader=None))

    assert "leader" not in built


def test_a_group_without_a_majority_tolerates_minus_one_failures() -> None:
    lost = tuple(member(k, ready=False, reason="gone", exists=False) for k in range(3))

    built = status(observed_group(members=lost))

    assert (built["toleratedFailures"], built["replicas"], built["membersReady"]) == (-1, 0, "0/3")


def test_the_start_of_a_leadership_is_kept_while_the_term_lasts() -> None:
    before = {"leader": {"member": "n1", "term": 7, "since": "2025-12-24T00:00:00Z"}}

    assert status(previous=before)["leader"]["since"] == "2025-12-24T00:00:00Z"


def test_a_new_term_has_a_new_start() -> None:
    before = {"leader": {"member": "n1", "term": 6, "since": "2025-12-24T00:00:00Z"}}

    assert status(previous=before, changes=[])["leader"]["since"] == "2026-01-01T00:00:00Z"


def test_leader_changes_survive_a_restart() -> None:
    unseen = replace(CHANGE, detect_s=None, elect_s=None, from_member="")
    shown = [leader_change_to_json(change) for change in (CHANGE, unseen)]

    assert leader_changes_from_json({"leaderChanges": shown}) == [CHANGE, unseen]


@pytest.mark.parametrize("entry", [{}, {"to": "n1"}, {"to": "n1", "term": 1, "at": "once"}])
def test_an_invalid_leader_change_is_dropped(entry: dict[str, Any]) -> None:
    shown = {"leaderChanges": [entry, leader_change_to_json(CHANGE)]}

    assert leader_changes_from_json(shown) == [CHANGE]


class Written:
    """An API that records statuses, and a clock that the test advances."""

    def __init__(self) -> None:
        self.statuses: list[Manifest] = []
        self.now_s = 1000.0
        self.reporter = StatusReporter(self, clock=lambda: self.now_s)

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        assert (kind, body["metadata"]["name"]) == ("DLedgerGroup", "flights")
        self.statuses.append(status)

    async def report(self, of: ObservedGroup, after_s: float = 0.0) -> int:
        self.now_s += after_s
        before = len(self.statuses)
        now = NOW + timedelta(seconds=self.now_s)
        built = status(of, previous=self.reporter.written or {}, now=now)
        await self.reporter.report(group_body(), built)
        return len(self.statuses) - before


def grown(index: int) -> ObservedGroup:
    """A group whose leader's log ends at `index`."""
    leading = member(1, status=leader_status(ledger_end_index=index, committed_index=index))
    return observed_group(members=(member(0), leading, member(2)))


async def test_an_unchanged_status_is_not_written_again() -> None:
    written = Written()

    assert await written.report(observed_group()) == 1
    assert await written.report(observed_group(), after_s=60.0) == 0


async def test_an_unchanged_status_is_rewritten_after_five_minutes() -> None:
    written = Written()
    await written.report(observed_group())

    assert await written.report(observed_group(), after_s=301.0) == 1


async def test_a_new_leader_is_written_at_once() -> None:
    written = Written()
    await written.report(observed_group())

    assert await written.report(observed_group(leader=Leader(term=8, member_id="n2"))) == 1


async def test_a_group_that_appends_writes_its_status_no_more_than_an_idle_one() -> None:
    written = Written()

    writes = [await written.report(grown(100 * step), after_s=5.0) for step in range(120)]

    assert [number for number, write in enumerate(writes) if write] == [0, 60], "five minutes apart"


def healing(entries: int) -> ObservedGroup:
    """A group with a member that says how far it has got."""
    behind = member(2, ready=False, reason=f"healing: {entries} entries, {entries / 7:.1f} s")
    return observed_group(members=(member(0), member(1), behind))


async def test_what_a_member_counts_up_in_its_words_is_written_once_a_minute() -> None:
    written = Written()
    await written.report(healing(1))

    writes = [await written.report(healing(entries), after_s=5.0) for entries in range(2, 122)]

    assert sum(writes) == 10


async def test_another_member_that_is_not_ready_is_written_at_once() -> None:
    written = Written()
    await written.report(observed_group(members=(member(0), member(1), member(2, reason="lost"))))
    silent = (member(0, ready=False, reason="n2 is silent"), member(1), member(2))
    await written.report(observed_group(members=silent))

    lost = (member(0, ready=False, reason="n1 is silent"), member(1), member(2, ready=False))
    assert await written.report(observed_group(members=lost), after_s=1.0) == 1


async def test_a_member_that_joined_a_second_time_is_written_at_once() -> None:
    """Only a number changes, but an Event is recorded at each report until it is written."""
    written, joined = Written(), [node_status("n2", joined_index=each) for each in (7, 9)]
    first, second = (
        observed_group(members=(member(0), member(1), member(2, status=each))) for each in joined
    )
    await written.report(first)

    assert await written.report(second, after_s=1.0) == 1
