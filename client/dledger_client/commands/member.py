"""`dledger member`: who belongs to a group, and changes of one member at a time."""

import argparse
from dataclasses import dataclass
from typing import Any, Final

from dledger_client.client import GroupMembership
from dledger_client.commands import common
from dledger_client.commands.common import ExitCode
from dledger_client.errors import RefusedError
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.requests import DLedgerResponseCode

EXIT_CODES: Final = (
    "0 it is so, 2 usage, 3 not known yet, 4 refused: the message says what must be done first, "
    "5 group unreachable. Asking again for what is so already is no error."
)

HINTS: Final = {
    DLedgerResponseCode.NO_SUCH_MEMBER: "it does not belong to the group: add it first; who is to "
    "be added must be in the leader's DLEDGER_ADDABLE_PEERS",
    DLedgerResponseCode.LAST_VOTER: "nobody would be left to vote: promote another first",
    DLedgerResponseCode.QUORUM_AT_RISK: "too few of the voters that there would be have answered "
    "lately: start those that are down, or remove them first",
    DLedgerResponseCode.TOO_MANY_MEMBERS: "a group has 64 members at most",
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH: "it still lacks too many entries, or is not up: see "
    "dledger status, and give it more time with --deadline",
    DLedgerResponseCode.MEMBERSHIP_CHANGING: "an earlier change is not committed: a majority of "
    "the voters must be up",
}
"""What must be done first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One of the commands that change something."""

    change: ChangeKind
    what: str
    description: str
    example: str


VERBS: Final = {
    "add": Verb(
        change=ChangeKind.ADD_LEARNER,
        what="let a member take entries, without a vote",
        description="Add MEMBER as a learner: it takes entries and counts in no quorum. The "
        "members' settings must know it (DLEDGER_ADDABLE_PEERS), and it should be up.",
        example="let n3 take entries",
    ),
    "promote": Verb(
        change=ChangeKind.PROMOTE,
        what="make a learner a voter",
        description="Make the learner MEMBER a voter, once it has nearly all entries: until then "
        "the request is repeated, up to --deadline.",
        example="let n3 vote once it has nearly all entries",
    ),
    "demote": Verb(
        change=ChangeKind.DEMOTE,
        what="make a voter a learner",
        description="Make the voter MEMBER a learner: it goes on to take entries, without a vote.",
        example="let n3 vote no more",
    ),
    "remove": Verb(
        change=ChangeKind.REMOVE,
        what="let a member belong to the group no more",
        description="Remove MEMBER. If it leads, it hands over. Stop it only when this is done.",
        example="let n3 belong to the group no more",
    ),
}


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger member` takes."""
    parser = common.new_parser(
        commands,
        "member",
        what="print who belongs to the group, or change it",
        description="Voters and learners are part of the log. They are changed one at a time, and "
        "a change is done when a majority holds it.",
        examples={
            "dledger member list": "a table",
            "dledger member add n3": "let n3 take entries",
            "dledger member promote n3": "then let it vote",
            "dledger member remove n3": "let it belong to the group no more",
        },
        exit_codes=EXIT_CODES,
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_list(verbs)
    for name, verb in VERBS.items():
        one = common.new_parser(
            verbs,
            name,
            what=verb.what,
            description=verb.description,
            examples={
                f"dledger member {name} n3": verb.example,
                f"dledger member {name} n3 --deadline 300": "and try for five minutes",
            },
            exit_codes=EXIT_CODES,
        )
        one.add_argument("member", metavar="MEMBER", help="its id, such as n3")
        common.add_group_options(one)
        common.add_output_option(one, "a sentence, or a line of JSON")
        one.set_defaults(run=run_change, change=verb.change)


def _add_list(verbs: common.Commands) -> None:
    parser = common.new_parser(
        verbs,
        "list",
        what="print who votes, who learns, and who may be added",
        description="Ask the leader for METADATA.",
        examples={
            "dledger member list": "a table",
            "dledger member list -o json": "a line of JSON",
        },
        exit_codes="0 answered, 2 usage, 4 refused, 5 group unreachable.",
    )
    common.add_group_options(parser)
    common.add_output_option(parser, "a table, or a line of JSON")
    parser.set_defaults(run=run_list)


async def run_list(arguments: argparse.Namespace) -> int:
    """Ask and print; return the exit code."""
    async with common.open_client(arguments) as client:
        found = await client.membership()
    if arguments.output == "json":
        common.write_json(_plain(found) | {"addable": found.addable, "addresses": found.addresses})
        return ExitCode.OK
    rows = [["MEMBER", "IS", "ROLE", "ADDRESS"]]
    for kind, ids in (
        ("voter", found.voters),
        ("learner", found.learners),
        ("addable", sorted(found.addable)),
    ):
        for member_id in ids:
            role = "leader" if member_id == found.leader_id else ""
            address = found.addresses.get(member_id) or found.addable.get(member_id, "-")
            rows.append([member_id, kind, role, address])
    common.write_table(rows)
    return ExitCode.OK


async def run_change(arguments: argparse.Namespace) -> int:
    """Ask and print; return the exit code."""
    try:
        async with common.open_client(arguments) as client:
            after = await client.change_membership(arguments.change, arguments.member)
    except RefusedError as error:
        hint = HINTS.get(error.code)
        raise RefusedError(error.code, f"{error}: {hint}" if hint else str(error)) from error
    if arguments.output == "json":
        common.write_json(_plain(after) | {"member": arguments.member})
        return ExitCode.OK
    learners = f"; learners {', '.join(after.learners)}" if after.learners else ""
    state = _state(after, arguments.member)
    common.write_line(f"{arguments.member} {state}; voters {', '.join(after.voters)}{learners}")
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
