"""Where audits keep what they have read: `history` of a DLedgerAudit and of `spec.audit`."""

import re
from dataclasses import dataclass
from typing import Final

from dledger_operator import names
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader
from dledger_operator.spec.volume_paths import read_path

_URI: Final = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://[^\s\x00-\x1f\x7f$?#]+")

_MEMBERS_CLAIM: Final = re.compile(rf"{names.DATA_VOLUME}-.*-[0-9]+")
"""The names that a StatefulSet gives its claims. A history there would mix with a member's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySpec:
    """The part `history` of a spec: a folder of a claim, or a URI."""

    claim_name: str
    """The volume claim, in the group's namespace; empty if there is a URI."""
    path: str
    """The folder in its volume, without slashes at its ends; empty for the group's name."""
    uri: str
    """A folder in a Hadoop file system; empty if there is a claim."""
    since_last: bool
    """Whether an audit reads only what is new, and a seventh of the rest."""


def read_history(spec: SpecReader) -> HistorySpec | None:
    """Parse `history`; None if the spec has none. Raises InvalidSpecError."""
    if spec.values.get("history") is None:
        return None
    section = spec.section("history")
    claim, uri = section.section("persistentVolumeClaim"), section.text("uri")
    if bool(claim.values) == bool(uri):
        raise InvalidSpecError(f"{section.path} must have either persistentVolumeClaim or uri")
    if uri and not _URI.fullmatch(uri):
        raise InvalidSpecError(
            f"{section.path}.uri is {uri[:80]!r}; it must be a folder of a Hadoop file system, "
            "such as hdfs://namenode:8020/audits/orders, and not file:"
        )
    claim_name = "" if uri else claim.required_text("claimName")
    if _MEMBERS_CLAIM.fullmatch(claim_name):
        raise InvalidSpecError(
            f"{claim.path}.claimName must not be the claim of a member, data-GROUP-N, but is "
            f"{claim_name}"
        )
    return HistorySpec(
        claim_name=claim_name,
        path=read_path(claim, "audits/orders"),
        uri=uri,
        since_last=section.flag("sinceLast", default=False),
    )
