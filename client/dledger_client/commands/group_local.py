"""`dledger group local`: run a group of real members on this machine until Ctrl-C."""

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dledger_client.commands import options, printing
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.local_events import Events
from dledger_client.local.broker import BROKER_PORT
from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import (
    ADDABLE_ALLOWED,
    MEMBERS_ALLOWED,
    GroupShape,
    kept_or_temporary,
)
from dledger_client.local.group import LocalGroup, environment_of
from dledger_formats import console, interrupts
from dledger_formats.settings import NO_STATE_MACHINE, REMOTING_PORT, STATE_MACHINES

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger group local`."""
    parser = options.new_parser(
        commands,
        "local",
        summary="run a group on this machine until Ctrl-C",
        description="Run the members as processes on loopback, restart members that exit, and "
        "report changes of the leader.",
        examples={
            "dledger group local": "three members with a temporary log",
            "dledger group local --data ~/orders": "keep the log for the next start",
            "dledger group local --addable 2": "run two more, for `dledger member add`",
            "dledger group local --broker": "a RocketMQ broker, for clients with namesrvAddr "
            "127.0.0.1:9876",
            "dledger group local --members 1 --port 9000": "one member on ports 9000 and 9001",
        },
        exit_codes="0 ended by a signal, 1 a member cannot keep running, or nobody reads the "
        "events, 2 usage error.",
    )
    parser.add_argument(
        "--members",
        metavar="N",
        type=_members,
        default=3,
        help="number of members: 1, 3, 5 or 7 (default: %(default)s)",
    )
    parser.add_argument(
        "--addable",
        metavar="N",
        type=_addable,
        default=0,
        help="number of further members that may be added: 0 to 6 (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=_data_folder,
        help="folder of the log (default: a temporary folder, removed at the end)",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=options.port,
        default=REMOTING_PORT,
        help="first port; each member uses two consecutive ports (default: %(default)s)",
    )
    parser.add_argument(
        "--group", metavar="NAME", default="local", help="name of the group (default: %(default)s)"
    )
    _add_broker_options(parser)
    _add_log_options(parser)
    options.add_output_option(parser, "format of events, one line each")
    parser.set_defaults(run=run)


def _members(text: str) -> int:
    """Parse the number of members, for argparse."""
    if text not in map(str, MEMBERS_ALLOWED):
        shown = text[: options.TEXT_SHOWN_MAX]
        raise argparse.ArgumentTypeError(f"{shown!a} is invalid; expected 1, 3, 5 or 7")
    return int(text)


def _data_folder(text: str) -> Path:
    """Parse the folder of the log, for argparse. An empty text would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no folder; for the current one, write .")
    return Path(text)


def _addable(text: str) -> int:
    """Parse the number of addable members, for argparse."""
    return options.whole_number(text, ADDABLE_ALLOWED[0], ADDABLE_ALLOWED[-1])


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-machine",
        choices=STATE_MACHINES,
        default=NO_STATE_MACHINE,
        help="state machine that applies the entries: %(choices)s (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        metavar="ARCHIVE",
        type=Path,
        help="archive of `dledger-audit compact` whose log a new group begins with (default: none)",
    )
    parser.add_argument(
        "--admin-token",
        action="store_true",
        help="demand an administration token for membership changes and transfers, and an audit "
        "token for audits; they are in the files admin-token and audit-token of the folder "
        "(default: anyone on this machine may change and read the group)",
    )


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker",
        action="store_true",
        help="run the members as a RocketMQ broker: its clients send and consume through any of "
        "them (default: plain members)",
    )
    parser.add_argument(
        "--broker-port",
        metavar="PORT",
        type=options.port,
        help="port that all members of a broker share; each uses one of the ports after it, too "
        f"(default: {BROKER_PORT})",
    )


async def run(arguments: argparse.Namespace) -> int:
    """Run the group until a signal arrives, and return the exit code."""
    _require_compatible(arguments)
    as_json = arguments.output == "json"
    stop = asyncio.Event()
    events = Events(stop, as_json=as_json)
    try:
        with kept_or_temporary(arguments.data) as folder:
            shape = GroupShape(
                group=arguments.group,
                members=arguments.members,
                addable=arguments.addable,
                broker=arguments.broker,
            )
            group = LocalGroup(
                shape,
                folder,
                first_port=arguments.port,
                broker_port=arguments.broker_port or BROKER_PORT,
                state_machine=arguments.state_machine,
                seed=arguments.seed,
                admin_token=arguments.admin_token,
                on_event=events.take,
            )
            with _set_by_signals(stop, group):
                async with group:
                    _print_start(group, is_kept=arguments.data is not None, as_json=as_json)
                    await stop.wait()
    except LocalGroupError as error:
        raise UsageError(str(error)) from error
    if events.problem is not None:
        raise events.problem
    if events.is_unread:
        printing.complain("dledger: nobody reads the events any more, so the group was stopped")
        return ExitCode.FAILED
    return ExitCode.OK


def _require_compatible(arguments: argparse.Namespace) -> None:
    if not arguments.broker:
        if arguments.broker_port is not None:
            raise UsageError("--broker-port has a meaning only with --broker; add --broker")
        return
    if arguments.state_machine != NO_STATE_MACHINE:
        raise UsageError("a broker's state is its own; leave out --state-machine or --broker")
    if arguments.seed is not None:
        raise UsageError(
            "a broker's log cannot begin with an archive, which has no broker's state; leave out "
            "--seed or --broker"
        )


@contextlib.contextmanager
def _set_by_signals(stop: asyncio.Event, group: LocalGroup) -> Iterator[None]:
    """Set `stop` at a signal. A further one kills the members that take long to stop."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        if stop.is_set():
            group.kill_slow_members()
        stop.set()

    handled = interrupts.not_ignored(STOP_SIGNALS)
    for number in handled:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _print_start(group: LocalGroup, *, is_kept: bool, as_json: bool) -> None:
    pids = group.process_ids
    if as_json:
        members = {
            member_id: {
                "address": str(member.address),
                "http": str(member.http_address),
                "pid": pids[member_id],
            }
            for member_id, member in group.members.items()
        }
        printing.write_event(
            {
                "event": "started",
                "group": group.name,
                "folder": str(group.folder),
                "environment": environment_of(group),
                "members": members,
                **_broker_json(group),
            }
        )
        return
    fate = "kept" if is_kept else "removed at the end"
    printing.write_line(f"group {group.name} in {group.folder} ({fate})\n")
    rows = [["MEMBER", "ADDRESS", "STATUS PAGE", "PROCESS"]]
    for member_id, member in group.members.items():
        page = f"http://{member.http_address}/status"
        rows.append([member_id, str(member.address), page, str(pids[member_id])])
    printing.write_table(rows)
    printing.write_line("\nIn another terminal:\n")
    for name, value in environment_of(group).items():
        printing.write_line(f"  export {name}={value}")
    program = own_program()
    if group.broker is None:
        printing.write_line(f"  {program} append --body hello")
        printing.write_line(f"  {program} tail --last 1 --count 1")
    printing.write_line(f"  {program} status\n")
    if group.broker is not None:
        printing.write_line(
            f"Clients of RocketMQ need the address {group.broker.address}, whichever member leads; "
            "in Java:\n"
        )
        printing.write_line(f'  producer.setNamesrvAddr("{group.broker.address}");\n')
        first = next(iter(group.members.values()))
        printing.write_line("How many messages a member has taken and delivered, without Java:\n")
        printing.write_line(
            f"  curl -s http://{first.http_address}/metrics | grep ^dledger_broker_messages_\n"
        )
    printing.write_line("Press Ctrl-C to stop the group.")
    console.flush()


def _broker_json(group: LocalGroup) -> Mapping[str, object]:
    if group.broker is None:
        return {}
    return {"broker": {"namesrvAddr": group.broker.address, "members": group.broker.addresses}}


def own_program() -> str:
    """Return the command that runs this program from the current folder."""
    if shutil.which("dledger") is not None:
        return "dledger"
    beside = Path(sys.argv[0])
    return str(beside) if beside.name == "dledger" else f"{sys.executable} -m dledger_client"
