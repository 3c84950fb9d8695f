"""The rules of `promtool check metrics`, for machines on which it is not installed."""

import re
import subprocess
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dledger_must_run import promtool

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LABEL: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_OTHER_UNITS: Final = re.compile(
    "milliseconds|microseconds|nanoseconds|minutes|hours|days|weeks|kibibytes|mebibytes|gibibytes|"
    "kilobytes|megabytes|gigabytes|bits|percent|percentage|s|ms|us|ns|sec|b|kb|mb|gb|tb|pb|m|h|d"
)
"""Units that are not base units, and abbreviations."""
_TYPES: Final = frozenset(("counter", "gauge", "histogram", "summary", "untyped"))
_SUFFIXES: Final = ("_total", "_bucket", "_count", "_sum")
_COUNTER: Final = re.compile(r"^# TYPE (\S+) counter$", re.MULTILINE)


def complaints(page: bytes) -> list[str]:
    """Return what is wrong with a page; empty if nothing is."""
    found = [
        f"{family.name}: {problem}"
        for family in text_string_to_metric_families(page.decode())
        for problem in _problems(family)
    ]
    found += [
        f"the counter {name} does not end in _total"
        for name in _COUNTER.findall(page.decode())
        if not name.endswith("_total")
    ]
    program = promtool.find()
    if program is not None:
        checked = subprocess.run(
            [program, "check", "metrics"], input=page, capture_output=True, check=False
        )
        found += (checked.stdout + checked.stderr).decode().splitlines()
        found += ["promtool refuses the page"] if checked.returncode else []
    return found


def _problems(family: Metric) -> Iterator[str]:
    if not family.documentation:
        yield "no help text"
    if family.type == "unknown":
        yield "no type"
    if not _NAME.fullmatch(family.name):
        yield "its name is not in snake case"
    for word in family.name.split("_"):
        if _OTHER_UNITS.fullmatch(word):
            yield f"{word} is not a base unit"
        if word in _TYPES:
            yield f"its name contains the type {word}"
    if family.name.endswith(_SUFFIXES):
        yield "its name ends like that of another type"
    yield from _problems_of_labels(family)


def _problems_of_labels(family: Metric) -> Iterator[str]:
    for label in sorted({label for sample in family.samples for label in sample.labels}):
        if not _LABEL.fullmatch(label):
            yield f"its label {label} is not in snake case"
        if label in ("le", "quantile") and family.type not in ("histogram", "summary"):
            yield f"its label {label} is reserved"
