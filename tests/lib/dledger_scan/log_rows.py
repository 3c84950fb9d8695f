"""Read a view in this process, as Spark would: plan, pickle each task, read."""

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from dledger_formats.http.status import Manifest
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import Interrupt, Sent, never, served, unseen
from pyspark_dledger.log_view import LogTask, LogView
from pyspark_dledger.members_view import MembersView, SegmentTask
from pyspark_dledger.options import Options, parse

COLUMNS = {"index": "bigint", "term": "bigint", "kind": "string", "body": "binary"}


@contextmanager
def members(
    logs: Mapping[str, Log],
    says: Mapping[str, Manifest | Callable[[], Manifest]] | None = None,
    interrupts: Mapping[str, Interrupt] | None = None,
    *,
    sent: Sent = unseen,
) -> Iterator[str]:
    """Serve logs as the members of a group; yield the argument of `load`."""
    said: dict[str, Manifest | Callable[[], Manifest]] = {
        member: manifest(log, member, peers=logs) for member, log in logs.items()
    }
    said |= says or {}
    with ExitStack() as stack:
        urls = {
            member: stack.enter_context(
                served(log.root, said[member], (interrupts or {}).get(member, never), sent=sent)
            )
            for member, log in logs.items()
        }
        yield ",".join(f"{member}={url}" for member, url in urls.items())


def planned(path: str, columns: Mapping[str, str] = COLUMNS, **given: Any) -> list[LogTask]:
    """Return the tasks of a query."""
    options = parse({"path": path, **{name: str(value) for name, value in given.items()}})
    return LogView(columns, options).tasks(options.ranges, None)


def rows_of(path: str, columns: Mapping[str, str] = COLUMNS, **given: Any) -> list[dict[str, Any]]:
    """Return the rows of a query, in the order of its tasks."""
    options = parse({"path": path, **{name: str(value) for name, value in given.items()}})
    view: LogView = pickle.loads(pickle.dumps(LogView(columns, options)))
    return [
        row
        for task in view.tasks(options.ranges, None)
        for batch in view.read(pickle.loads(pickle.dumps(task)))
        for row in batch.to_pylist()
    ]


def member_tasks(path: str, **given: Any) -> list[SegmentTask]:
    """Return the tasks of a query of the view `members`."""
    options = _member_options(path, given)
    return MembersView({"index": "bigint"}, options).tasks(options.ranges, None)


def member_rows(path: str, columns: Mapping[str, str], **given: Any) -> list[dict[str, Any]]:
    """Return the rows of a query of the view `members`, in the order of its tasks."""
    options = _member_options(path, given)
    view: MembersView = pickle.loads(pickle.dumps(MembersView(columns, options)))
    return [
        row
        for task in view.tasks(options.ranges, None)
        for batch in view.read(pickle.loads(pickle.dumps(task)))
        for row in batch.to_pylist()
    ]


def _member_options(path: str, given: Mapping[str, Any]) -> Options:
    named = {name: str(value) for name, value in given.items()}
    return parse({"path": path, "view": "members", **named})
