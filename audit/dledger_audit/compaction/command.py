"""Run `dledger-audit compact` and `dledger-audit verify-compaction`."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dledger_audit import hadoop
from dledger_audit.compaction import archive as archives
from dledger_audit.compaction import compact as runs
from dledger_audit.compaction import copies as log_copies
from dledger_audit.compaction import hadoop_archive
from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.live import SparkLive
from dledger_audit.compaction.proof.found import CHECKS, Found
from dledger_audit.compaction.proof.verify import Sources, verify
from dledger_audit.executors.settings import ExecutorPodError
from dledger_audit.executors.starting import started
from dledger_audit.executors.watching import NoExecutorsError
from dledger_audit.hadoop import HadoopError
from dledger_audit.outputs import Outputs
from dledger_audit.places import is_uri
from dledger_audit.progress import starting_spark
from dledger_audit.session import session
from dledger_audit.waiting import waits_of
from dledger_formats import console
from dledger_formats.audit import ExitCode
from dledger_formats.log.archives import INFO_FILE
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.keys import DecoderError

_REFUSALS: Final = (RefusedError, DecoderError, ExecutorPodError, NoExecutorsError, HadoopError)


def compact(options: argparse.Namespace) -> int:
    """Compact a group's log to an archive; return the exit code."""
    try:
        members = log_copies.ask(options.group, options.members, waits_of(options))
        if is_uri(options.archive):
            archive = _compact_in_hadoop(options, members)
        else:
            with archives.locked(options.archive):
                archive = _compact(options, members, options.archive, partial(started, options))
    except _REFUSALS as error:
        return _refused(error, "the archive was not changed")
    except Exception:  # exit code 70 distinguishes a failed run from a refused one
        traceback.print_exc()
        return ExitCode.FAILED
    _print_archive(archive, options)
    return ExitCode.SOUND


def _compact_in_hadoop(options: argparse.Namespace, members: list[Copy]) -> Archive:
    """Make the archive in a local folder, from what the file system has, and copy it there."""
    with started(options) as context, hadoop.scratch() as local:
        remote = hadoop.HadoopFolder(context, options.archive)
        with remote.locked():
            previous = hadoop_archive.fetch(remote, local)
            if previous is not None:
                hadoop_archive.remove_others(remote, previous.folder)
            archive = _compact(options, members, local, lambda: nullcontext(context))
            if archive.info != previous:
                hadoop_archive.publish(remote, archive)
        return archive


def _compact(
    options: argparse.Namespace,
    members: list[Copy],
    path: Path,
    start: Callable[[], AbstractContextManager[SparkContext]],
) -> Archive:
    with _named(path, options.archive):
        previous = Archive.load(path)
        if previous is not None:
            archives.remove_others(path, previous.info.folder)
        planned = runs.plan(
            options.group, members, options.decoder, options.tombstone_entries, previous
        )
        if previous is None and planned is not None:
            archives.check_no_log(path, planned.first_index)
    if planned is None:
        assert previous is not None
        return previous
    with start() as context:
        return runs.compact(planned, members, SparkLive(SparkSession(context)), path)


def verify_compaction(options: argparse.Namespace) -> int:
    """Compare an archive with its sources; return the exit code."""
    try:
        with ExitStack() as stack:
            spark = cache(
                lambda: stack.enter_context(session("local[1]", starting=starting_spark()))
            )
            archive = _load(_fetched(options.archive, stack, spark))
            members = log_copies.ask(archive.info.group, options.members, waits_of(options))
            before = _load(_fetched(options.previous, stack, spark)) if options.previous else None
            found = verify(archive, Sources(members=members, previous=before))
    except (*_REFUSALS, OSError) as error:
        return _refused(error, "the archive was not verified")
    except Exception:  # exit code 70 distinguishes a failed run from a wrong archive
        traceback.print_exc()
        return ExitCode.FAILED
    outputs = Outputs()
    outputs.to_standard_output(_found_text(archive, found, options.output))
    if outputs.has_failed:
        return ExitCode.FAILED
    if found.is_damaged:
        return ExitCode.DAMAGED
    return ExitCode.INCOMPLETE if found.counts else ExitCode.SOUND


def _fetched(place: Path | str, stack: ExitStack, spark: Callable[[], SparkContext]) -> Path:
    """Return the folder of an archive, or of a copy that stays until the stack ends.

    `spark` returns the one context of the process, and starts it on the first call.
    """
    if isinstance(place, Path):
        return place
    local = stack.enter_context(hadoop.scratch())
    stack.enter_context(_named(local, place))
    hadoop_archive.fetch(hadoop.HadoopFolder(spark(), place), local)
    return local


@contextmanager
def _named(folder: Path, place: Path | str) -> Iterator[None]:
    """Put the place of an archive into a refusal, instead of the folder of its local copy."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(str(error).replace(str(folder), str(place))) from error


def _load(path: Path) -> Archive:
    archive = Archive.load(path)
    if archive is None:
        raise RefusedError(f"{path} is no archive: it has no {INFO_FILE}")
    return archive


def _refused(error: Exception, unchanged: str) -> int:
    sys.stderr.write(f"dledger-audit: {unchanged}: {error}\n")
    return ExitCode.REFUSED


def _print_archive(archive: Archive, options: argparse.Namespace) -> None:
    info, folder = archive.info, f"{options.archive}/{archive.info.folder}"
    facts = {
        "group": info.group,
        "folder": folder,
        "firstIndex": info.first_index,
        "cleanIndex": info.clean_index,
        "endIndex": info.end_index,
        "deadEntries": info.dead_entries,
        "deadBytes": info.dead_bytes,
        "sha256": info.copy_sha256,
    }
    if options.output == "json":
        console.write(json.dumps(facts) + "\n")
        return
    console.write(
        f"{folder} holds the entries {info.first_index} to {info.end_index} of the group "
        f"{info.group}, compacted up to {info.clean_index}; the last run dropped "
        f"{info.dead_entries:,} entries with {info.dead_bytes:,} bytes\n"
    )


def _found_text(archive: Archive, found: Found, output: str) -> str:
    if output == "json":
        plain = {
            "counts": dict(found.counts),
            "findings": [
                {"check": each.check, "index": each.index, "detail": each.detail}
                for each in found.first
            ],
        }
        return json.dumps(plain) + "\n"
    info = archive.info
    if not found.counts:
        return (
            f"the archive is right: entries {info.first_index} to {info.end_index}, compacted up "
            f"to {info.clean_index}\n"
        )
    lines = []
    for check, meaning in CHECKS.items():
        if check in found.counts:
            lines.append(f"{check} ({found.counts[check]:,}): {meaning}\n")
            lines += [f"    {each.detail}\n" for each in found.first if each.check == check]
    return "".join(lines)
