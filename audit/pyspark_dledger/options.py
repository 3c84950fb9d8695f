"""The options of the data source, parsed once, with the standard library alone.

Spark passes all options as text and ignores the case of their names. An option that does not exist
is refused, since a misspelled one would silently read something else.
"""

import difflib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark_dledger.bearer import Bearer, TokenError, check_token
from pyspark_dledger.ranges import INDEX_MAX, IndexRange, cut

ENTRIES: Final = "entries"
DIGESTS: Final = "digests"
PACKS: Final = "packs"

OF_SPARK: Final = ("path", "paths")
"""What `load` passes: its argument, or a JSON list of its arguments."""

LOG: Final = "log"
MEMBERS: Final = "members"
FAIL: Final = "fail"
SKIP: Final = "skip"
TASK_BYTES: Final = 256 << 20
BATCH_BYTES: Final = 1 << 30

INDEX: Final = "index"
HEADERS: Final = "headers"
FULL: Final = "full"
LEVELS: Final = (INDEX, HEADERS, FULL)

PUBLIC: Final = (
    "members", "view", "level", "decoder", "startingIndex", "endingIndex", "ranges", "onRemoved",
    "taskBytes", "maxEntriesPerBatch", "maxBytesPerBatch", "token", "tokenFile",
)  # fmt: skip
OF_THE_AUDIT: Final = ("manifests", "rows", "cuts")

Value = TypeVar("Value")


class OptionError(ValueError):
    """An option does not exist, or its value is wrong; the message says what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a query asked for."""

    members: dict[str, str]
    """Places by member id."""
    ranges: tuple[IndexRange, ...] = (IndexRange(),)
    """Sorted ranges that do not overlap."""
    first_wanted: int | None = None
    """The first index that the query names; None if it takes the log as it begins."""
    view: str = LOG
    level: str = FULL
    decoder: str = ""
    """The name of a decoder of `keys`; empty for none."""
    on_removed: str = FAIL
    task_bytes: int = TASK_BYTES
    batch_bytes: int = BATCH_BYTES
    batch_entries: int | None = None
    """The bounds of a batch of a streaming query."""
    bearer: Bearer = field(default_factory=Bearer)
    rows: str = ENTRIES
    cuts: tuple[int, ...] = ()
    manifests: dict[str, Any] = field(default_factory=dict)
    """Manifests by member id, as JSON objects."""


def parse(given: Mapping[str, str]) -> Options:
    """Parse the options of a query. Raises OptionError."""
    names = {name.lower(): name for name in (*PUBLIC, *OF_THE_AUDIT, *OF_SPARK)}
    for name in given:
        if name.lower() not in names:
            raise OptionError(_unknown(name, names))
    options = {names[name.lower()]: value for name, value in given.items()}
    ranges = _ranges(options)
    rows = _one_of("rows", options.get("rows", ENTRIES), (ENTRIES, DIGESTS, PACKS))
    view = _one_of("view", options.get("view", LOG), (LOG, MEMBERS))
    if view == LOG and rows != ENTRIES:
        raise OptionError(f"rows is {rows!r}, which needs view={MEMBERS}")
    level = _one_of("level", options.get("level", FULL), LEVELS)
    if level != FULL and rows != ENTRIES:
        raise OptionError(f"rows is {rows!r}, which needs level={FULL}")
    if "decoder" in options and level != FULL:
        raise OptionError(f"decoder is {options['decoder']!r}, which needs level={FULL}")
    is_named = "startingIndex" in options or "ranges" in options
    return Options(
        members=parse_members(_places(options)),
        ranges=ranges,
        first_wanted=ranges[0].first if is_named else None,
        view=view,
        level=level,
        decoder=options.get("decoder", ""),
        on_removed=_one_of("onRemoved", options.get("onRemoved", FAIL), (FAIL, SKIP)),
        task_bytes=_count("taskBytes", options.get("taskBytes"), TASK_BYTES),
        batch_bytes=_count("maxBytesPerBatch", options.get("maxBytesPerBatch"), BATCH_BYTES),
        batch_entries=_count("maxEntriesPerBatch", options.get("maxEntriesPerBatch"), 0) or None,
        bearer=_bearer(options),
        rows=rows,
        cuts=tuple(_json("cuts", options.get("cuts", "[]"), _indexes)),
        manifests=_json("manifests", options.get("manifests", "{}"), _object),
    )


def parse_members(text: str) -> dict[str, str]:
    """Parse `ID=URL,...`. Raises OptionError for anything else."""
    members: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        member, equals, url = part.partition("=")
        if not (member and equals and url) or member in members:
            raise OptionError(f"{part!r}: expected ID=URL, with each ID once")
        members[member] = _place(url)
    if not members:
        raise OptionError("no members are given; each is ID=http://HOST:PORT")
    return members


def _place(text: str) -> str:
    """Return a URL of HTTP, or a folder. Raises OptionError for places that are read by Hadoop.

    Hadoop is in Spark's JVM, which the Python workers cannot call.
    """
    if text.startswith("file:///"):
        return text.removeprefix("file://")
    scheme, separator, _ = text.partition("://")
    if separator and scheme != "http":
        raise OptionError(
            f"{text!r} cannot be read: name the URL of a member, http://HOST:PORT, or a local "
            "folder, to which you can copy what another file system has"
        )
    return text


def _unknown(name: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in PUBLIC], 1, 0.5)
    hint = f"Did you mean {names[near[0]]}? " if near else ""
    return f"the option {name} does not exist. {hint}The options are {', '.join(PUBLIC)}."


def _bearer(options: Mapping[str, str]) -> Bearer:
    if options.get("token") and options.get("tokenFile"):
        raise OptionError(
            "token and tokenFile are both given, and may be different tokens: give one of them"
        )
    try:
        return Bearer(
            token=check_token(options.get("token", "")), file=options.get("tokenFile", "")
        )
    except TokenError as error:
        raise OptionError(f"token is wrong: {error}") from None


def _places(options: Mapping[str, str]) -> str:
    if "paths" in options:
        return ",".join(_json("paths", options["paths"], _texts))
    return options.get("members") or options.get("path", "")


def _ranges(options: Mapping[str, str]) -> tuple[IndexRange, ...]:
    """Return the wanted ranges: those of `ranges`, each cut to `startingIndex` to `endingIndex`."""
    hull = IndexRange(
        first=_index("startingIndex", options.get("startingIndex"), 0),
        last=_index("endingIndex", options.get("endingIndex"), INDEX_MAX),
    )
    if hull.last < hull.first:
        raise OptionError(f"endingIndex is {hull.last}, before startingIndex, {hull.first}")
    return cut(_json("ranges", options.get("ranges", "[]"), _sorted_ranges), hull)


def _index(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or int(text) > INDEX_MAX:
        raise OptionError(
            f"{name} is {text!r}; it must be the index of an entry, such as 0 or 5000"
        )
    return int(text)


def _count(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= INDEX_MAX:
        raise OptionError(f"{name} is {text!r}; it must be a number above 0")
    return int(text)


def _one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    if value not in allowed:
        raise OptionError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return value


def _json(name: str, text: str, check: Callable[[Any], Value]) -> Value:
    try:
        return check(json.loads(text))
    except (ValueError, TypeError) as error:
        raise OptionError(f"{name} is {text[:80]!r}, which is wrong: {error}") from error


def _object(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise TypeError("it must be a JSON object")
    return plain


def _texts(plain: Any) -> list[str]:
    if not isinstance(plain, list) or not all(isinstance(each, str) for each in plain):
        raise TypeError("it must be a JSON list of texts")
    return plain


def _indexes(plain: Any) -> list[int]:
    is_list = isinstance(plain, list)
    if not is_list or not all(type(each) is int and each >= 0 for each in plain):
        raise TypeError("it must be a JSON list of indexes")
    return list(plain)


def _sorted_ranges(plain: Any) -> list[IndexRange]:
    if not isinstance(plain, list) or not all(len(_indexes(pair)) == 2 for pair in plain):
        raise TypeError("it must be a JSON list of pairs of indexes, such as [[0, 99], [200, 299]]")
    is_backward = any(last < first for first, last in plain)
    if is_backward or any(first <= last for (_, last), (first, _) in itertools.pairwise(plain)):
        raise ValueError("the ranges must be sorted and must not overlap")
    return [IndexRange(first=first, last=last) for first, last in plain]
