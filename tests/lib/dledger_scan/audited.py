"""A group whose audits keep a history, without Spark or HTTP."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dledger_audit.capture import capture
from dledger_audit.history.audit import audit_with_history
from dledger_audit.history.chunks import CHUNK
from dledger_audit.history.history_file import History
from dledger_audit.report import summarize
from dledger_formats.audit import Verdict
from dledger_formats.http.status import Manifest
from dledger_logs.histories import history
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Shape
from dledger_scan.local_audit import Answer, LocalPasses

CHUNKS = 8
COUNT = CHUNKS * CHUNK + 500
ENTRIES = history(COUNT, body_bytes=(5, 20))
SHAPE = Shape(segment_bytes=1 << 18, index_segment_bytes=32 * 5000)
NAMES = ("n0", "n1", "n2")
Change = Callable[[Manifest], Manifest]


@dataclass
class Audited:
    """The group at some instant, and the history that its audits pass on."""

    logs: Mapping[str, Log]
    committed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, COUNT - 1))
    life: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NAMES, "a"))
    change: dict[str, Change] = field(default_factory=dict)
    history: History = field(default_factory=lambda: History(group="g"))
    restarts: set[str] = field(default_factory=set)
    """The members that have restarted when they are asked again."""
    silent: set[str] = field(default_factory=set)
    """The members of the group that do not answer."""
    entries: int = 0
    """The entries of the member with most of them, by the last audit."""
    entries_read: int = 0
    details: dict[str, str] = field(default_factory=dict)
    """The findings of the last audit, by check."""

    def says(self, member: str) -> Manifest:
        said = manifest(
            self.logs[member], member, peers=self.logs, committed_index=self.committed[member]
        )
        same: Change = lambda said: said  # noqa: E731
        return self.change.get(member, same)(replace(said, life=self.life[member]))

    def audit(self, *, since_last: bool = False) -> tuple[Verdict, set[tuple[str, str, int, int]]]:
        served = {member: self.says(member) for member in self.logs if member not in self.silent}
        captured = capture("g", {name: name for name in served}, lambda url: Answer(served[url]))
        passes = Counting(self.logs)
        later = {
            member: replace(each, life="later") if member in self.restarts else each
            for member, each in served.items()
        }
        result, self.history = audit_with_history(
            passes, captured, lambda: later, self.history, since_last=since_last
        )
        self.entries_read = passes.entries
        summary = summarize(captured, result)
        self.entries = summary.entries
        self.details = {each.check: each.detail for each in summary.first_findings}
        return summary.verdict, {
            (each.check, each.member, each.first_index, each.last_index)
            for each in summary.first_findings
            if each.check != "known_before"
        }


class Counting(LocalPasses):
    """Counts the entries that are read."""

    entries = 0

    def digests(self, *arguments: Any, **named: Any) -> Any:
        rows = super().digests(*arguments, **named)
        object.__setattr__(self, "entries", sum(rows["entries"].to_pylist()))
        return rows


def copied(log: Log, folder: Path) -> Log:
    shutil.copytree(log.root, folder)
    return replace(log, root=folder)
