"""What became of an append, as callers hear it."""

from typing import TypeAlias

import msgspec

from dledger_formats.protocol.requests import DLedgerResponseCode


class Appended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An append that a quorum holds."""

    index: int
    term: int
    pos: int
    """Where the entry begins in the data files."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A quorum holds the entry."""

    number: int
    """Counts the bodies given, from 0."""
    index: int
    term: int
    attempts: int


class Unknown(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry may be in the log, or get there later, or never."""

    number: int
    reason: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry was not appended and will not be."""

    number: int
    code: DLedgerResponseCode
    """METADATA_ERROR when no leader was found in time."""
    reason: str


# Structs, as one is made for each append: a frozen dataclass takes twenty times as long to make.
Outcome: TypeAlias = Acknowledged | Unknown | Refused
