"""`JavaClient`: DLedger's own client in a process, one call at a time."""

import selectors
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_group.waiting import wait_for
from dledger_java.process import start_java

ANSWER_S = 60.0
_Code = DLedgerResponseCode
_NO_ANSWER = {_Code.METADATA_ERROR, _Code.NETWORK_ERROR, _Code.INTERNAL_ERROR, _Code.NOT_LEADER}
"""What the client says when it reached no leader."""


@dataclass(frozen=True, slots=True)
class JavaAnswer:
    """What the client got; -1 and None stand for what an answer does not have."""

    code: DLedgerResponseCode
    index: int
    pos: int
    term: int
    body: bytes | None


class JavaClient:
    """Used with `with`: the process ends with its block."""

    def __init__(
        self, folder: Path, class_path: str, peers: Mapping[str, str], group: str = "g"
    ) -> None:
        """`peers` are the members that it begins with."""
        self._log_path = folder / "java-client.log"
        named = ";".join(f"{member}-{address}" for member, address in peers.items())
        with self._log_path.open("ab") as log:
            self._process = start_java(
                class_path, "JavaClient", [group, named], home=folder, log=log, piped=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def append(self, body: bytes) -> JavaAnswer:
        """Append until it is acknowledged, so that the log may hold the body more than once."""
        return self._until(f"append {body.hex()}", lambda code: code is _Code.SUCCESS)

    def get(self, index: int) -> JavaAnswer:
        """Read one entry, asking until a leader answers."""
        return self._until(f"get {index}", lambda code: code not in _NO_ANSWER)

    def transfer(self, leader: str, transferee: str, term: int) -> JavaAnswer:
        """Ask the leader of that term to hand over."""
        return self._ask(f"transfer {leader} {transferee} {term}")

    def _until(self, command: str, is_end: Callable[[DLedgerResponseCode], bool]) -> JavaAnswer:
        """Ask again and again: the client itself waits for three seconds, and tries twice at
        most, which a new leader or a busy machine may not keep.
        """

        def asked() -> JavaAnswer | None:
            answer = self._ask(command)
            return answer if is_end(answer.code) else None

        return wait_for(asked, f"the Java client ends its {command[:80]!r}", timeout_s=ANSWER_S)

    def _ask(self, command: str) -> JavaAnswer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            answered = selector.select(ANSWER_S)
        # One command is under way at a time, so a line that has begun comes to its end.
        words = self._process.stdout.readline().decode().split() if answered else []
        if not words:
            raise AssertionError(
                f"the Java client gave no answer to {command[:80]!r}; its log ends in "
                f"{self._log_path.read_text(errors='replace')[-2000:]}"
            )
        code, index, pos, term, body = words
        return JavaAnswer(
            DLedgerResponseCode(int(code)),
            int(index),
            int(pos),
            int(term),
            None if body == "-" else bytes.fromhex(body.removeprefix("=")),
        )
