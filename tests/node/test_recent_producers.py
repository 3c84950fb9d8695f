"""A leader forgets no producer that was at work a moment ago for one that has done less."""

from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun, channel_of
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_node.services.recent_entries import RECENT_S, SAMPLED_S, RecentEntries
from dledger_node.store.derived.producers import ESTABLISHED_SEQUENCE, Finding, Producers
from dledger_wire.played import become_master, make_server

AT_WORK = 10**6
"""The identity of a producer with more appends than the others; all came after the log's end."""


def full_table() -> Producers:
    table = Producers(producers_max=4)
    for identity in range(AT_WORK, AT_WORK + 400, 100):
        appends = ESTABLISHED_SEQUENCE + (identity == AT_WORK)
        table.note(ChannelRun(identity, disk.NOOP, channel_of(table.next_number(), 0)))
        for sequence in range(1, appends + 1):
            channel = table.channel(identity, sequence)
            table.note(ChannelRun(identity + sequence, disk.NORMAL, channel))
    return table


@pytest.mark.parametrize("idle_s", [RECENT_S - 1, RECENT_S + 1])
async def test_a_leader_forgets_a_producer_at_work_only_after_a_minute(
    tmp_path: Path, idle_s: float
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    server._store.producers.table = table = full_table()
    service = server.clients.idempotent
    service._recent.note(server._loop.time() - idle_s, AT_WORK + 1000)

    service.register(RegisterProducerRequest(group="g", remote_id="n0"), lambda _: None)

    assert len(table) == 4
    is_forgotten = table.find(AT_WORK, 1) is Finding.UNKNOWN_PRODUCER
    assert is_forgotten is (idle_s > RECENT_S)
    await server.close()


def test_entries_are_recent_until_a_sample_of_the_log_s_end_is_a_minute_old() -> None:
    recent = RecentEntries()
    assert recent.first_index(1000.0) == 0

    for number in range(20):
        recent.note(1000.0 + number * SAMPLED_S, 100 * number)

    assert recent.first_index(1000.0 + 19 * SAMPLED_S) == 100 * (19 - RECENT_S / SAMPLED_S) + 1


def test_entries_after_a_cut_of_the_log_are_recent() -> None:
    recent = RecentEntries()
    recent.note(1000.0, 500)

    recent.note(1000.0 + RECENT_S, 30)

    assert recent.first_index(1000.0 + RECENT_S) == 31
