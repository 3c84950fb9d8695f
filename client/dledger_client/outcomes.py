"""What became of an append, as callers hear it."""

from dataclasses import dataclass
from typing import TypeAlias

from dledger_formats.requests import DLedgerResponseCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """An append that a quorum holds."""

    index: int
    term: int
    pos: int
    """Where the entry begins in the data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A quorum holds the entry."""

    number: int
    """Counts the bodies given, from 0."""
    index: int
    term: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The entry may be in the log, or get there later, or never."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The entry was not appended and will not be."""

    number: int
    code: DLedgerResponseCode
    """METADATA_ERROR when no leader was found in time."""
    reason: str


Outcome: TypeAlias = Acknowledged | Unknown | Refused
