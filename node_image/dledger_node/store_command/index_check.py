"""Compare the index files with the entries."""

from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_node.store_command.findings import Finding, Findings, Kind
from dledger_node.store_command.log_folder import LogFolder
from dledger_node.store_command.walk import INDEX_WINDOW_BYTES, Batch


class IndexCheck:
    """Compares index units with entries, batch by batch."""

    def __init__(self, index: LogFolder, findings: Findings) -> None:
        self._index = index
        self._findings = findings
        self._wrong: tuple[int, int] | None = None
        self.wrong_units = 0

    def compare(self, batch: Batch) -> None:
        """Compare the units of a batch; batches come in the order of their entries."""
        pos = batch.first_index * INDEX_UNIT_SIZE
        stored = self._read(pos, len(batch.units))
        if stored == batch.units:
            return
        for at in range(0, len(batch.units), INDEX_UNIT_SIZE):
            unit = slice(at, at + INDEX_UNIT_SIZE)
            if stored[unit] != batch.units[unit]:
                self._add(batch.first_index + at // INDEX_UNIT_SIZE)

    def finish(self, end_index: int) -> None:
        """Report the remaining wrong units, and units after that of the last entry."""
        self._report_run()
        for segment in self._index.segments:
            at = max(0, (end_index + 1) * INDEX_UNIT_SIZE - segment.start)
            while at < segment.size:
                raw = segment.read(at, INDEX_WINDOW_BYTES)
                if any(raw):
                    used = at + next(offset for offset, byte in enumerate(raw) if byte)
                    finding = Finding(
                        kind=Kind.BYTES_BEHIND_THE_INDEX,
                        file=segment.label,
                        byte=used,
                        detail="there are units after that of the last entry; a node cuts them "
                        "when it starts",
                    )
                    self._findings.add(finding)
                    return
                at += INDEX_WINDOW_BYTES

    def _read(self, pos: int, size: int) -> bytes:
        """Read stored units; zeros where a file is missing or unreadable."""
        parts: list[bytes] = []
        end = pos + size
        while pos < end:
            segment = self._index.segment_at(pos)
            following = self._index.next_segment(pos)
            if segment is not None:
                step = min(end, segment.end) - pos
                parts.append(segment.read(pos - segment.start, step).ljust(step, b"\0"))
            else:
                step = (min(end, following.start) if following else end) - pos
                parts.append(bytes(step))
            pos += step
        return b"".join(parts)

    def _add(self, index: int) -> None:
        self.wrong_units += 1
        if self._wrong is not None and self._wrong[1] == index - 1:
            self._wrong = (self._wrong[0], index)
            return
        self._report_run()
        self._wrong = (index, index)

    def _report_run(self) -> None:
        if self._wrong is None:
            return
        first, last = self._wrong
        pos = first * INDEX_UNIT_SIZE
        segment = self._index.segment_at(pos)
        finding = Finding(
            kind=Kind.WRONG_INDEX_UNITS,
            file=segment.label if segment else f"{self._index.folder.name}/",
            byte=pos - segment.start if segment else None,
            first_index=first,
            last_index=last,
            detail=f"{last - first + 1} units are missing or disagree with the entries; a node "
            "rewrites them when it starts, or all units if index/ is empty",
        )
        self._findings.add(finding)
        self._wrong = None
