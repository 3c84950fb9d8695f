"""Messages of a repeated send that the log lacks."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.send_draft import SendDraft
from dledger_broker.door.sending.sends import Sends
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Outcome


async def test_a_message_that_the_log_had_and_has_no_longer_is_in_doubt() -> None:
    """The draft has only what the log lacked before; its door sends the whole again."""
    member: Any = SimpleNamespace(
        leads=True, term=1, readable_index=5, find_numbers=lambda _: [None, None]
    )
    owner: Any = SimpleNamespace()
    now_s = asyncio.get_running_loop().time
    turned: list[Way] = []
    with ThreadPoolExecutor(1) as threads:
        awaited = AwaitedRepeats(member, now_s)
        settings: Any = SimpleNamespace()
        sends = Sends(settings, member, owner, awaited, threads, threads, lambda: bytes(8))
        draft = SendDraft((), [b"second"], ("t", 0), sends._ended)  # type: ignore[list-item]
        draft.call = SimpleNamespace(turned=turned.append)  # type: ignore[assignment]
        draft.numbers, draft.repeats = Numbers(7, [2]), Numbers(7, [1, 2])
        draft.created = None
        draft.refusal = DLedgerResponseCode.SEQUENCES_NOT_NEW
        sends._ended(draft, Outcome.REFUSED)

    assert turned == [Way.IN_DOUBT]
