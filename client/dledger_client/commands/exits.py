"""The exit codes of commands, and the error for invalid arguments and input."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of `dledger`; if several apply, the first in this list is used."""

    UNKNOWN = 3
    """The outcome of at least one append is unknown: it may or may not be in the log."""
    UNREACHABLE = 5
    """No member, or no leader, answered in time."""
    REFUSED = 4
    """The group refused at least one request, which had no effect."""
    FAILED = 1
    """The command failed on this machine, not in the group."""
    USAGE = 2
    OK = 0


class UsageError(Exception):
    """The arguments or the input are invalid."""
