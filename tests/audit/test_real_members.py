"""Real members are sound: what they write raises no finding, also across restarts and retention."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from dledger_audit.audit import audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.report import summarize
from dledger_client.client import DLedgerClient
from dledger_formats.audit import AuditSummary, Verdict
from dledger_scan.local_audit import RemotePasses
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group


def audited(group: NodeGroup) -> AuditSummary:
    urls = {
        member: f"http://{group.host(member)}:{group.http_ports[member]}"
        for member in group.running()
    }
    captured = capture("g", urls)
    with closing(RemotePasses(urls)) as passes:
        return summarize(captured, audit(passes, captured, lambda: ask_again(captured)))


async def append(group: NodeGroup, sizes: range) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch([os.urandom(size) for size in sizes], deadline_s=60)


def test_what_members_write_across_restarts_and_retention_is_sound(tmp_path: Path) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12,
        retention_bytes=5 << 16,
    ) as group:  # fmt: skip
        for first in range(3):
            asyncio.run(append(group, range(first, 1500, 3)))
            master = group.master()
            group.stop(master)
            group.start(master)
            group.wait_until_up(master)
            group.master()
        group.wait_for_status(
            group.master(), lambda view: view.ledger_begin_index > 0, "has removed segments"
        )

        summary = audited(group)

    assert summary.verdict is Verdict.SOUND, summary
    assert not summary.first_findings
    assert summary.entries > 100
