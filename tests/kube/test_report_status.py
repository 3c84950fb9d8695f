"""The status of a group: what it says, and how often it is written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dledger_kube.objects import NOW, facts, group_body, leader_status, member, node_status
from dledger_operator.behaviours.leader.leader_history import LeaderHistory
from dledger_operator.behaviours.report.status import (
    StatusReporter,
    build_status,
    leader_change_to_json,
    leader_changes_from_json,
)
from dledger_operator.facts import GroupFacts, Leader, LeaderChange
from dledger_operator.views import Manifest

CHANGE = LeaderChange(
    from_member="n0", to_member="n1", term=7, reason="LeaderLost", at=NOW,
    detect_s=0.12, elect_s=0.31, relabel_s=0.05, endpoints_s=0.06,
)  # fmt: skip


def status(
    of: GroupFacts | None = None,
    previous: Mapping[str, Any] | None = None,
    now: Any = NOW,
    changes: list[LeaderChange] | None = None,
) -> Manifest:
    history = LeaderHistory([CHANGE] if changes is None else changes)
    return build_status(of or facts(), history, generation=4, previous=previous or {}, now=now)


def test_a_status_tells_what_a_user_looks_for() -> None:
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


def test_lag_is_what_the_leader_knows_of_each_member() -> None:
    lags = {each["id"]: each["lagEntries"] for each in status()["members"]}

    assert lags == {"n0": 0, "n1": 0, "n2": 10}


def test_a_member_that_does_not_answer_is_shown_without_what_only_it_knows() -> None:
    lost = member(2, ready=False, reason="no answer", status=None)
    shown = status(facts(members=(member(0), member(1), lost)))["members"][2]

    assert shown == {
        "id": "n2", "pod": "flights-2", "role": "slave", "membership": "Voter", "ready": False,
        "lagEntries": 10,
    }  # fmt: skip


def test_without_a_leader_there_is_none_in_the_status() -> None:
    built = status(facts(leader=None))

    assert "leader" not in built
    assert "lagEntries" not in built["members"][0]


def test_a_group_without_a_majority_tolerates_less_than_nothing() -> None:
    lost = tuple(member(k, ready=False, reason="gone", exists=False) for k in range(3))

    built = status(facts(members=lost))

    assert (built["toleratedFailures"], built["replicas"], built["membersReady"]) == (-1, 0, "0/3")


def test_the_leader_s_begin_is_kept_while_it_leads() -> None:
    before = {"leader": {"member": "n1", "term": 7, "since": "2025-12-24T00:00:00Z"}}

    assert status(previous=before)["leader"]["since"] == "2025-12-24T00:00:00Z"


def test_a_new_term_has_a_new_begin() -> None:
    before = {"leader": {"member": "n1", "term": 6, "since": "2025-12-24T00:00:00Z"}}

    assert status(previous=before, changes=[])["leader"]["since"] == "2026-01-01T00:00:00Z"


def test_leader_changes_survive_a_restart() -> None:
    unseen = replace(CHANGE, detect_s=None, elect_s=None, from_member="")
    shown = [leader_change_to_json(change) for change in (CHANGE, unseen)]

    assert leader_changes_from_json({"leaderChanges": shown}) == [CHANGE, unseen]


@pytest.mark.parametrize("entry", [{}, {"to": "n1"}, {"to": "n1", "term": 1, "at": "once"}])
def test_a_leader_change_that_cannot_be_read_is_forgotten(entry: dict[str, Any]) -> None:
    shown = {"leaderChanges": [entry, leader_change_to_json(CHANGE)]}

    assert leader_changes_from_json(shown) == [CHANGE]


class Written:
    """An API that remembers what was written, and a clock that a test moves."""

    def __init__(self) -> None:
        self.statuses: list[Manifest] = []
        self.now_s = 1000.0
        self.reporter = StatusReporter(self, clock=lambda: self.now_s)

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        assert (kind, body["metadata"]["name"]) == ("DLedgerGroup", "flights")
        self.statuses.append(status)

    async def report(self, of: GroupFacts, after_s: float = 0.0) -> int:
        self.now_s += after_s
        before = len(self.statuses)
        now = NOW + timedelta(seconds=self.now_s)
        built = status(of, previous=self.reporter.written or {}, now=now)
        await self.reporter.report(group_body(), built)
        return len(self.statuses) - before


def grown(index: int) -> GroupFacts:
    """The same group, after some appends."""
    leading = member(1, status=leader_status(ledger_end_index=index, committed_index=index))
    return facts(members=(member(0), leading, member(2)))


async def test_a_status_that_says_the_same_is_not_written_again() -> None:
    written = Written()

    assert await written.report(facts()) == 1
    assert await written.report(facts(), after_s=60.0) == 0


async def test_a_status_is_written_again_now_and_then_to_heal_it() -> None:
    written = Written()
    await written.report(facts())

    assert await written.report(facts(), after_s=301.0) == 1


async def test_a_new_leader_is_written_at_once() -> None:
    written = Written()
    await written.report(facts())

    assert await written.report(facts(leader=Leader(term=8, member_id="n2"))) == 1


async def test_indexes_that_move_are_written_seldom() -> None:
    written = Written()
    await written.report(facts())

    writes = [await written.report(grown(100 + step), after_s=1.0) for step in range(25)]

    assert sum(writes) == 2


def test_nothing_is_changed_in_what_is_reported() -> None:
    built = status(facts(members=(member(0, status=node_status("n0", committed_index=5)),)))

    assert built["members"][0]["committedIndex"] == 5
