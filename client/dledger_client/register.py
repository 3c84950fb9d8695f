"""Reading and setting the registers of a group that runs the register state machine."""

from dledger_client.calls.call import READ_REGISTER
from dledger_client.cluster.arguments import check_int
from dledger_client.errors import RefusedError
from dledger_client.session import Session
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.register import (
    NUMBER_MAX,
    NUMBER_MIN,
    SET,
    ReadRegisterRequest,
    ReadRegisterResponse,
)


async def entry_that_sets(
    session: Session, key: int, value: int, deadline_s: float | None
) -> bytes:
    """Return the body of the entry that sets a register.

    Raises RefusedError unless the group runs the register state machine, TypeError or ValueError
    unless key and value are signed 32-bit numbers.
    """
    check_int(key, "key", NUMBER_MIN, NUMBER_MAX)
    check_int(value, "value", NUMBER_MIN, NUMBER_MAX)
    if not session.has_register:
        await read(session, key, deadline_s)
    return SET.pack(key, value)


async def read(session: Session, key: int, deadline_s: float | None) -> int | None:
    """Return the value of a register; None if it was never set. Raises the same errors."""
    check_int(key, "key", NUMBER_MIN, NUMBER_MAX)
    request = ReadRegisterRequest(group=session.group, key=key)
    try:
        answer = await session.ask(READ_REGISTER, request, deadline_s)
    except RefusedError as error:
        if error.code is not DLedgerResponseCode.UNSUPPORTED:
            raise
        message = f"group {session.group} does not run the register state machine ({error})"
        raise RefusedError(error.code, message) from error
    assert isinstance(answer, ReadRegisterResponse)
    session.has_register = True
    return answer.value
