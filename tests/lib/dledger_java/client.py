"""`JavaClient`: Java DLedger's own client in a process, one call at a time."""

import selectors
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_java.program import JavaProgram
from tools.groups.waiting import wait_for

ANSWER_S = 60.0
_Code = DLedgerResponseCode
_NO_ANSWER = {_Code.METADATA_ERROR, _Code.NETWORK_ERROR, _Code.INTERNAL_ERROR, _Code.NOT_LEADER}
"""Codes that the client returns when it reached no leader."""


@dataclass(frozen=True, slots=True)
class JavaAnswer:
    """The client's result; a field that the response lacks is -1, or None for the body."""

    code: DLedgerResponseCode
    index: int
    pos: int
    term: int
    body: bytes | None


class JavaClient(JavaProgram):
    """Java DLedger's client, which knows some members at first."""

    def __init__(
        self, folder: Path, class_path: str, peers: Mapping[str, str], group: str = "g"
    ) -> None:
        """`peers` are the members that the client knows at first."""
        named = ";".join(f"{member}-{address}" for member, address in peers.items())
        log = folder / "java-client.log"
        super().__init__(class_path, "JavaClient", [group, named], log=log)

    def append(self, body: bytes) -> JavaAnswer:
        """Append until acknowledged; retries may store the body more than once."""
        return self._until(f"append {body.hex()}", lambda code: code is _Code.SUCCESS)

    def get(self, index: int) -> JavaAnswer:
        """Read one entry; retry until a leader answers."""
        return self._until(f"get {index}", lambda code: code not in _NO_ANSWER)

    def transfer(self, leader: str, transferee: str, term: int) -> JavaAnswer:
        """Request a leadership transfer from the leader of that term."""
        return self._ask(f"transfer {leader} {transferee} {term}")

    def _until(self, command: str, is_end: Callable[[DLedgerResponseCode], bool]) -> JavaAnswer:
        """Repeat a command until `is_end` accepts the code of its result.

        The client itself tries at most twice and waits three seconds, which is too short for an
        election on a busy machine.
        """

        def asked() -> JavaAnswer | None:
            answer = self._ask(command)
            return answer if is_end(answer.code) else None

        return wait_for(asked, f"the Java client completes {command[:80]!r}", timeout_s=ANSWER_S)

    def _ask(self, command: str) -> JavaAnswer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            answered = selector.select(ANSWER_S)
        # Only one command runs at a time, so a line that has begun will be completed.
        words = self._process.stdout.readline().decode().split() if answered else []
        if not words:
            raise AssertionError(
                f"the Java client gave no answer to {command[:80]!r}; its log ends in "
                f"{self.log_end()}"
            )
        code, index, pos, term, body = words
        return JavaAnswer(
            DLedgerResponseCode(int(code)),
            int(index),
            int(pos),
            int(term),
            None if body == "-" else bytes.fromhex(body.removeprefix("=")),
        )
