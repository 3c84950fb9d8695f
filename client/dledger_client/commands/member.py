"""`dledger member`: print the membership of a group, or change one member at a time."""

import argparse
from dataclasses import dataclass
from typing import Any, Final

from dledger_client.admin import GroupMembership
from dledger_client.commands import admin_token, group_client, member_names, options, printing
from dledger_client.commands.exits import ExitCode
from dledger_client.errors import OutcomeUnknownError, RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind

EXIT_CODES: Final = (
    "0 the change is in effect, 2 usage error, 3 outcome unknown, 4 refused (the message says what "
    "to do first), 5 group unreachable. Repeating a change that is in effect succeeds."
)

HINTS: Final = {
    DLedgerResponseCode.LAST_VOTER: "the group would have no voter left: promote another member "
    "first",
    DLedgerResponseCode.QUORUM_AT_RISK: "too few of the resulting voters have answered recently "
    "and have room: start those that are down, give full volumes room, or remove them first",
    DLedgerResponseCode.TOO_MANY_MEMBERS: "a group can have at most 64 members",
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH: "the member lags too far behind or is down: see "
    "dledger status, and allow more time with --deadline",
    DLedgerResponseCode.MEMBERSHIP_CHANGING: "an earlier change is not committed yet: a majority "
    "of the voters must be up",
}
"""What to do about a refusal, for any kind of change."""
NO_SUCH_MEMBER_HINTS: Final = {
    ChangeKind.ADD_LEARNER: "is not in the leader's DLEDGER_ADDABLE_PEERS",
    ChangeKind.PROMOTE: "does not belong to the group: add it first",
}
ABSENT: Final = "does not belong to the group: see dledger member list"
"""What to do about an unknown member, for a change that needs a member of the group."""
IN_DOUBT: Final = (
    "the change may be in the log, and is then in effect once a majority of the voters is up: "
    "repeat the command"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One of the commands that change the membership."""

    change: ChangeKind
    summary: str
    description: str
    example: str


VERBS: Final = {
    "add": Verb(
        change=ChangeKind.ADD_LEARNER,
        summary="add a member as a learner",
        description="Add MEMBER as a learner: it receives entries but counts in no quorum. It must "
        "be in the members' DLEDGER_ADDABLE_PEERS, and should be up.",
        example="add n3 as a learner",
    ),
    "promote": Verb(
        change=ChangeKind.PROMOTE,
        summary="make a learner a voter",
        description="Make the learner MEMBER a voter. While it lags too far behind, the request is "
        "repeated until --deadline.",
        example="make n3 a voter once it has nearly all entries",
    ),
    "demote": Verb(
        change=ChangeKind.DEMOTE,
        summary="make a voter a learner",
        description="Make the voter MEMBER a learner: it still receives entries but no longer "
        "votes.",
        example="make n3 a learner",
    ),
    "remove": Verb(
        change=ChangeKind.REMOVE,
        summary="remove a member from the group",
        description="Remove MEMBER from the group. A leader transfers its leadership first. Keep "
        "the member running until the command has succeeded.",
        example="remove n3 from the group",
    ),
}


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger member`."""
    parser = options.new_parser(
        commands,
        "member",
        summary="print or change the members",
        description="Print or change the members of the group. The log records every change. "
        "Members are changed one at a time; a change is in effect once a majority has stored it.",
        examples={
            "dledger member list": "print the members",
            "dledger member add n3": "add n3 as a learner",
            "dledger member promote n3": "then make it a voter",
            "dledger member remove n3": "remove it from the group",
        },
        exit_codes=EXIT_CODES,
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_list(verbs)
    for name, verb in VERBS.items():
        one = options.new_parser(
            verbs,
            name,
            summary=verb.summary,
            description=verb.description,
            examples={
                f"dledger member {name} n3": verb.example,
                f"dledger member {name} n3 --deadline 300": "retry for up to five minutes",
            },
            exit_codes=EXIT_CODES,
        )
        member_names.add_argument(one, "member id, such as n3")
        options.add_group_options(one)
        admin_token.add_option(one)
        options.add_output_option(one, "text: a sentence; json: one line")
        one.set_defaults(run=run_change, change=verb.change)


def _add_list(verbs: options.Commands) -> None:
    parser = options.new_parser(
        verbs,
        "list",
        summary="print the voters, the learners and the members that may be added",
        description="Ask the leader for METADATA and print the voters, the learners and the "
        "members that may be added.",
        examples={
            "dledger member list": "print a table",
            "dledger member list -o json": "print one line of JSON",
        },
        exit_codes="0 the leader answered, 2 usage error, 4 refused, 5 group unreachable.",
    )
    options.add_group_options(parser)
    options.add_output_option(parser, "text: a table; json: one line")
    parser.set_defaults(run=run_list)


async def run_list(arguments: argparse.Namespace) -> int:
    """Print the membership and return the exit code."""
    async with group_client.open_client(arguments) as client:
        found = await client.membership()
    if arguments.output == "json":
        printing.write_json(
            _plain(found) | {"addable": found.addable, "addresses": found.addresses}
        )
        return ExitCode.OK
    rows = [["MEMBER", "MEMBERSHIP", "ROLE", "ADDRESS"]]
    for kind, ids in (
        ("voter", found.voters),
        ("learner", found.learners),
        ("addable", sorted(found.addable)),
    ):
        for member_id in ids:
            role = "leader" if member_id == found.leader_id else ""
            address = found.addresses.get(member_id) or found.addable.get(member_id, "-")
            rows.append([member_id, kind, role, address])
    printing.write_table(rows)
    return ExitCode.OK


async def run_change(arguments: argparse.Namespace) -> int:
    """Change a member, print the resulting membership and return the exit code."""
    try:
        token = await admin_token.read(arguments)
        async with group_client.open_client(arguments, admin_token=token) as client:
            after = await client.change_membership(arguments.change, arguments.member)
    except RefusedError as error:
        hint = HINTS.get(error.code)
        if error.code is DLedgerResponseCode.NO_SUCH_MEMBER:
            hint = f"{arguments.member} {NO_SUCH_MEMBER_HINTS.get(arguments.change, ABSENT)}"
        raise RefusedError(error.code, f"{error}: {hint}" if hint else str(error)) from error
    except OutcomeUnknownError as error:
        raise OutcomeUnknownError(f"{error}: {IN_DOUBT}") from error
    if arguments.output == "json":
        printing.write_json(_plain(after) | {"member": arguments.member})
        return ExitCode.OK
    learners = f"; learners {', '.join(after.learners)}" if after.learners else ""
    state = _state(after, arguments.member)
    printing.write_line(f"{arguments.member} {state}; voters {', '.join(after.voters)}{learners}")
    return ExitCode.OK


def _plain(found: GroupMembership) -> dict[str, Any]:
    return {
        "group": found.group,
        "leader": found.leader_id,
        "term": found.term,
        "voters": list(found.voters),
        "learners": list(found.learners),
        "index": found.index,
    }


def _state(found: GroupMembership, member_id: str) -> str:
    if member_id in found.voters:
        return "is a voter"
    return "is a learner" if member_id in found.learners else "does not belong to the group"
