"""The results of appends that callers receive."""

from typing import TypeAlias

import msgspec

from dledger_formats.protocol.codes import DLedgerResponseCode

# These are structs because one is created for each append, and creating a frozen dataclass takes
# twenty times as long.


class Appended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Position of an entry that a quorum has stored."""

    index: int
    term: int
    pos: int
    """Offset at which the entry begins in the data files."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A quorum has stored the entry."""

    number: int
    """Position of the body in the caller's sequence of bodies, from 0."""
    index: int
    term: int
    attempts: int


class Unknown(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry may be in the log, may be appended later, or may never be."""

    number: int
    reason: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry was not appended and will not be."""

    number: int
    code: DLedgerResponseCode
    """The group's response code; METADATA_ERROR if no leader was found in time."""
    reason: str


Outcome: TypeAlias = Acknowledged | Unknown | Refused
