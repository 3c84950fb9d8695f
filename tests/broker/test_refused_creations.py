"""A message that was taken because the settings of its topic were on their way, and are refused.

If it got into the log, it would create queues for which nobody has kept room, and a later message
might be one that no member can apply.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import Place, RecordDraft
from dledger_broker.state import topics
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.proposing_leaders import HOST, message_draft
from dledger_broker_log.states import topic_config
from dledger_node.embedding import Member
from dledger_node.raft.core import Raft
from dledger_node.services.drafts import HOLD_S, Draft, Outcome
from dledger_node.shell.server import DLedgerServer
from dledger_node.state_machine.apply import entries_of
from dledger_wire.played import become_master, confirmed, make_server

QUEUES = 8


class Leader:
    """A leader with real drafts, whose disk makes room for entries when a test says so."""

    def __init__(self, server: DLedgerServer, core: Raft) -> None:
        self.server, self.core = server, core
        self.state = BrokerState()
        self.drafts = server.clients.drafts
        member = SimpleNamespace(
            machine=lambda _: self.state, leads=True, master=True, has_applied_all=True, term=1,
            wall_ms=lambda: 0, drafts=self.drafts,
        )  # fmt: skip
        self.drafts.owner = self.owner = LogOwner(cast("Member", member), lambda: HOST)
        assert self.owner.is_ready()
        self.now_s = asyncio.get_running_loop().time()

    def create_and_send(self, name: str, queue_id: int, age_s: float = 0.0) -> list[Outcome]:
        """Propose a message for a new topic, with its settings; return how that ends."""
        outcomes = list[Outcome]()
        change = self.owner.create_topic(topic_config(name, QUEUES))

        def ended(_: Draft, outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED:
                self.owner.forget_topic(change)
            outcomes.append(outcome)

        message = message_draft((name, queue_id)).bodies
        self._propose(RecordDraft([change], message, (name, queue_id), ended), age_s)
        return outcomes

    def send(self, place: Place) -> list[Outcome]:
        """Propose a message for a topic that is known, perhaps from settings on their way."""
        assert self.owner.topic(place[0]) is not None
        outcomes = list[Outcome]()
        self._propose(message_draft(place, outcomes), 0.0)
        return outcomes

    def _propose(self, draft: RecordDraft, age_s: float) -> None:
        self.owner.propose(draft, self.now_s - age_s)

    def stop_the_disk(self) -> None:
        """Let a thread make room that does not end."""
        self.server._disk.room._making = asyncio.get_running_loop().create_future()

    async def go_on(self) -> None:
        """Let the disk answer, and everything be written, committed and applied."""
        self.server._disk.room._making = None
        self.drafts.go_on()
        await asyncio.sleep(0)
        first_index, last_index = 1, self.core.ledger_end_index
        for peer_id in ("n1", "n2"):
            self.server.clients.peers.receive(confirmed(peer_id, last_index))
        if last_index >= first_index:
            runs, _ = self.server._store.read_range(first_index, last_index, 1 << 20)
            self.state.apply(entries_of(runs, first_index)[0])


@pytest.fixture
async def leader(tmp_path: Path) -> Leader:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    return Leader(server, core)


async def test_a_message_is_refused_with_the_settings_of_its_topic(leader: Leader) -> None:
    leader.stop_the_disk()
    created = leader.create_and_send("t", 0, age_s=HOLD_S - 0.1)
    sent = leader.send(("t", 3))
    await asyncio.sleep(0)
    leader.drafts.expire(leader.now_s + 0.2)
    await leader.go_on()

    assert created == [Outcome.REFUSED]
    assert sent == [Outcome.REFUSED]
    assert leader.state.tables.topics.by_name == {}
    await leader.server.close()


async def test_a_message_that_outlives_refused_settings_takes_no_room_of_other_topics(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log had a message for which no queue was left, and no member went on past it."""
    monkeypatch.setattr("dledger_broker.leading.pending_topics.SYSTEM_QUEUES", 1)
    monkeypatch.setattr(topics, "QUEUES_MAX", QUEUES + 1)
    leader.stop_the_disk()
    leader.create_and_send("t", 0, age_s=HOLD_S - 0.1)
    sent = leader.send(("t", QUEUES - 1))
    await asyncio.sleep(0)
    leader.drafts.expire(leader.now_s + 0.2)
    other = leader.create_and_send("u", QUEUES - 1)
    await leader.go_on()

    assert (sent, other) == ([Outcome.REFUSED], [Outcome.COMMITTED])
    assert leader.state.tables.topics.has_queue("u", QUEUES - 1)
    await leader.server.close()


async def test_messages_are_written_with_settings_that_are_written_before_them(
    leader: Leader,
) -> None:
    created = leader.create_and_send("t", 0)
    sent = [leader.send(("t", queue_id)) for queue_id in range(QUEUES)]
    await leader.go_on()

    assert (created, sent) == ([Outcome.COMMITTED], [[Outcome.COMMITTED]] * QUEUES)
    assert leader.state.next_offset("t", 0) == 2
    await leader.server.close()
