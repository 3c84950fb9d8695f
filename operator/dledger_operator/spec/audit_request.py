"""A `DLedgerAudit`, parsed and defaulted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from dledger_formats.quantities import quantity_bytes
from dledger_operator import names
from dledger_operator.spec.audit_history import HistorySpec, read_history
from dledger_operator.spec.quantities import duration_ms, memory_limit_bytes
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

LEVELS: Final = ("Full",)
DEFAULT_READ_RATE: Final = "50Mi"
DECODER: Final = re.compile(
    r"register|kv|rocketmq|json:.+|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*"
)
"""The form of the names that `pyspark_dledger.keys.decoder` takes."""
DEFAULT_RESOURCES: Final = {
    "requests": {"cpu": "1", "memory": "1Gi"},
    "limits": {"memory": "2Gi"},
}


DEFAULT_EXECUTOR_RESOURCES: Final = {
    "requests": {"cpu": "1", "memory": "2Gi"},
    "limits": {"memory": "2Gi"},
}
EXECUTORS_MAX: Final = 100
EXECUTOR_MEMORY_MIN: Final = "1150Mi"
"""Enough for one task."""
START_WITHIN_DEFAULT: Final = "5m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """The pods that read the logs for an audit, besides its own."""

    most: int
    resources: Mapping[str, Any]
    """The resources of each executor."""
    start_within_s: int
    """How long work may wait without an executor before the audit ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """The validated spec of one `DLedgerAudit`."""

    namespace: str
    name: str
    uid: str
    generation: int
    group_name: str
    level: str
    resources: Mapping[str, Any]
    ttl_after_finished_s: int
    read_bytes_per_second: int
    """How fast each member is read at most, by all readers of the audit together."""
    executors: Executors | None = None
    """None if the audit's own pod reads the logs."""
    decoder: str = ""
    """How the audit finds keys, to report what compaction would drop; empty if it does not."""
    history: HistorySpec | None = None
    """None if nothing is kept between audits."""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Parse an API object. Raises InvalidSpecError, which names the invalid key."""
        metadata = body["metadata"]
        spec = SpecReader(body.get("spec") or {}, "spec")
        if len(metadata["name"]) > names.AUDIT_NAME_LENGTH_MAX:
            raise InvalidSpecError(
                f"metadata.name is longer than {names.AUDIT_NAME_LENGTH_MAX} characters, so the "
                "names of its Job and pod would be too long; create an audit with a shorter name"
            )
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            group_name=spec.section("groupRef").required_text("name"),
            level=spec.choice("level", LEVELS),
            resources=dict(spec.section("resources").values) or DEFAULT_RESOURCES,
            ttl_after_finished_s=spec.converted("ttlAfterFinished", duration_ms, "24h") // 1000,
            read_bytes_per_second=spec.converted("readRate", quantity_bytes, DEFAULT_READ_RATE),
            decoder=_decoder(spec),
            history=read_history(spec),
            executors=_executors(spec.section("executors")),
        )


def own_code_problem(spec: SpecReader) -> str:
    """Return why a decoder cannot be used with executors; empty if it can, or there are none.

    A user's own function would run in a pod whose environment has the secret of the run.
    """
    name = spec.text("decoder")
    if ":" not in name or name.startswith("json:") or not spec.section("executors").values:
        return ""
    return (
        f"{spec.path}.decoder must not be module:function with executors, because its code would "
        "run in pods that hold the secret of Spark; use another decoder, or no executors"
    )


def _decoder(spec: SpecReader) -> str:
    found = spec.text("decoder")
    if problem := own_code_problem(spec):
        raise InvalidSpecError(problem)
    if found and not DECODER.fullmatch(found):
        raise InvalidSpecError(
            f"{spec.path}.decoder is {found[:80]!r}; it must be register, kv, json:FIELD, rocketmq "
            "or module:function"
        )
    return found


def _executors(section: SpecReader) -> Executors | None:
    if not section.values:
        return None
    most = section.number("max", 0)
    if not 1 <= most <= EXECUTORS_MAX:
        raise InvalidSpecError(
            f"{section.path}.max is {most}; it must be between 1 and {EXECUTORS_MAX}"
        )
    resources = section.section("resources")
    _check_memory(resources)
    return Executors(
        most=most,
        resources=dict(resources.values) or DEFAULT_EXECUTOR_RESOURCES,
        start_within_s=section.converted("startWithin", duration_ms, START_WITHIN_DEFAULT) // 1000,
    )


def _check_memory(resources: SpecReader) -> None:
    """Refuse too little memory. Without a limit, the requested memory is the limit."""
    sections = (resources.section("limits").values, resources.section("requests").values)
    memory = next((each["memory"] for each in sections if each.get("memory") is not None), None)
    if memory is None:
        return
    if memory_limit_bytes({"limits": {"memory": memory}}) < quantity_bytes(EXECUTOR_MEMORY_MIN):
        raise InvalidSpecError(
            f"{resources.path}: an executor needs at least {EXECUTOR_MEMORY_MIN} of memory, not "
            f"{str(memory)[:40]}"
        )
