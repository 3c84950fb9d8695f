"""Reports that a member of a local group does not answer, and that it answers again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_client.cluster.addresses import ServerAddress
from dledger_client.cluster.pages import PageError, get_page
from dledger_client.local.member import MemberProcess

SILENT_S: Final = 5.0
"""After this long without an answer, a member is reported."""
ASK_S: Final = 1.0
ANSWER_WAIT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A member whose process runs has not answered for some seconds, as if it were frozen."""

    member_id: str
    pid: int
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersAgain:
    """A member that was reported as silent answers."""

    member_id: str


async def watch_silence(
    address: ServerAddress,
    member_id: str,
    process: MemberProcess,
    on_event: Callable[[Silent | AnswersAgain], None],
) -> None:
    """Ask a member every second, and report its silence once, until cancelled.

    A process that is starting, or that exited and is restarted, is not silent.
    """
    loop, is_reported = asyncio.get_running_loop(), False
    since_s = loop.time()
    while True:
        asked_s = loop.time()
        try:
            await get_page(address, "/status", ANSWER_WAIT_S)
        except PageError:
            if not process.has_answered:
                since_s = loop.time()
            silent_s = loop.time() - since_s
            # One request alone may have failed because this program itself was suspended.
            if silent_s >= SILENT_S and asked_s > since_s + ASK_S and not is_reported:
                is_reported = True
                on_event(Silent(member_id=member_id, pid=process.pid, silent_s=silent_s))
        else:
            since_s = loop.time()
            if is_reported:
                is_reported = False
                on_event(AnswersAgain(member_id=member_id))
        await asyncio.sleep(ASK_S)
