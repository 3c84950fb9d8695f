"""Requests of administrators that look into the log (33)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered_after_reads
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.reader import MessageReader
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.offsets import ViewMessageFields


class MessageViews:
    """Answers from this member's own log."""

    def __init__(self, owner: LogOwner, reader: MessageReader, threads: ThreadPoolExecutor) -> None:
        self._owner = owner
        self._reader = reader
        self._threads = threads
        self._loop = asyncio.get_running_loop()

    def message(self, call: Call) -> None:
        """Answer with the message at the offset in its id. Raises FormatError, RefusedError."""
        offset = call.fields(ViewMessageFields).offset
        if offset > self._owner.state.tables.last_physical_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"there is no message at offset {offset} yet"
            )
        call.channel.reads_waiting += 1
        self._loop.create_task(self._read_and_answer(call, offset))

    async def _read_and_answer(self, call: Call, offset: int) -> None:
        with answered_after_reads(call):
            raw = await self._loop.run_in_executor(self._threads, self._reader.raw_at, offset)
            call.answer(ResponseCode.SUCCESS, body=raw)
