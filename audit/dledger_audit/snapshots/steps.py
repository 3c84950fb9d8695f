"""Reduce the entries between snapshots to what they do to the state, as Spark's workers do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dledger_audit.snapshots.registers import delta_of, unreadable
from dledger_formats.http.status import Manifest
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.files import ReadError
from pyspark_dledger.group import Group
from pyspark_dledger.intact import Reader
from pyspark_dledger.log_view import WINDOW_BYTES, LogTask, log_tasks, open_copy
from pyspark_dledger.ranges import IndexRange

TASK_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StepTask:
    """Some entries of a step; `task` is None if no log has all entries of the step."""

    step: int
    task: LogTask | None


def copies_of(manifests: Mapping[str, Manifest], places: Mapping[str, str]) -> list[Copy]:
    """Return the members' logs as copies to read entries from; `places` are URLs or folders."""
    return [
        Copy(member=member, place=places[member], manifest=manifest)
        for member, manifest in manifests.items()
    ]


def step_tasks(copies: Sequence[Copy], steps: Sequence[IndexRange]) -> list[StepTask]:
    """Divide the entries of all steps into tasks."""
    group, divided = Group(copies=tuple(copies)), list[StepTask]()
    for number, step in enumerate(steps):
        tasks = log_tasks(group, [step], TASK_BYTES)
        entries = sum(each.last - each.first + 1 for task in tasks for each in task.pieces)
        if entries == step.last - step.first + 1:
            divided += [StepTask(number, task) for task in tasks]
        else:
            divided.append(StepTask(number, None))
    return divided


def read_task(task: StepTask) -> Iterator[pa.RecordBatch]:
    """Yield rows of DELTA_SCHEMA; a key may occur again."""
    if task.task is None:
        yield unreadable(task.step)
        return
    try:
        with Reader(WINDOW_BYTES, open_copy=open_copy) as reader:
            for piece in task.task.pieces:
                for entries in reader.read(task.task.copies, piece.first, piece.last):
                    yield delta_of(task.step, entries)
    except (RefusedError, ReadError):  # the audit's other checks say why
        yield unreadable(task.step)
