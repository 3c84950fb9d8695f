"""What `dledger group local` prints while the group runs: its events, as text or JSON."""

import asyncio
import time
from typing import TypeAlias

from dledger_client.commands import printing
from dledger_client.local.group import Event, LeaderChanged
from dledger_client.local.member import Restarted, StopsSlowly
from dledger_client.local.silence import AnswersAgain, Silent
from dledger_client.local.token import TokenTrouble
from dledger_client.local.trouble import OutOfService, StorageTrouble
from dledger_formats import console
from dledger_formats.console import OutputError

Printed: TypeAlias = (
    LeaderChanged | Restarted | Silent | AnswersAgain | StorageTrouble | OutOfService | TokenTrouble
)


class Events:
    """Prints events. If one cannot be printed, the command stops the members and ends.

    An error raised here would end the task of the member that the event is about.
    """

    def __init__(self, stop: asyncio.Event, *, as_json: bool) -> None:
        self.problem: Exception | None = None
        """Why an event could not be printed; no further events are printed."""
        self.is_unread = False
        """Whether the group ends because nobody reads its events."""
        self._stop = stop
        self._print = _print_event_json if as_json else _print_event

    def take(self, event: Event) -> None:
        """Print an event; on standard error, if it is about the end of the command."""
        if isinstance(event, StopsSlowly):
            printing.complain(
                f"dledger: stopping {event.member_id} (process {event.pid}); Ctrl-C kills it"
            )
            return
        if self.problem is not None or self.is_unread:
            return
        try:
            self._print(event)
        except OutputError as error:
            self.problem = error
        # After Ctrl-C, which ends the readers of a pipe as well, the signal is what ends the group.
        self.is_unread = console.is_unread() and not self._stop.is_set()
        if self.problem is not None or self.is_unread:
            self._stop.set()


def _print_event(event: Printed) -> None:
    now = time.strftime("%H:%M:%S")
    if isinstance(event, LeaderChanged):
        printing.write_line(f"{now}  {event.leader_id} is the leader of term {event.term}")
    elif isinstance(event, StorageTrouble):
        state = event.state.value.lower()
        printing.write_line(f"{now}  the store of {event.member_id} is {state}: {event.reason}")
    elif isinstance(event, OutOfService):
        printing.write_line(f"{now}  {event.member_id} is out of service: {event.reason}")
    elif isinstance(event, Silent):
        printing.write_line(
            f"{now}  {event.member_id} (process {event.pid}) has not answered for "
            f"{event.silent_s:.0f} s: it is suspended or overloaded, or its disk is"
        )
    elif isinstance(event, AnswersAgain):
        printing.write_line(f"{now}  {event.member_id} answers again")
    elif isinstance(event, TokenTrouble):
        printing.write_line(f"{now}  {event.reason}")
    else:
        printing.write_line(
            f"{now}  {event.member_id} exited ({event.reason}) and was restarted as process "
            f"{event.pid}"
        )
    console.flush()


def _print_event_json(event: Printed) -> None:
    if isinstance(event, LeaderChanged):
        printing.write_event({"event": "leader", "leader": event.leader_id, "term": event.term})
    elif isinstance(event, StorageTrouble):
        printing.write_event(
            {
                "event": "storage",
                "member": event.member_id,
                "state": event.state.value,
                "reason": event.reason,
            }
        )
    elif isinstance(event, OutOfService):
        printing.write_event(
            {"event": "outOfService", "member": event.member_id, "reason": event.reason}
        )
    elif isinstance(event, Silent):
        printing.write_event(
            {
                "event": "silent",
                "member": event.member_id,
                "seconds": round(event.silent_s, 1),
                "pid": event.pid,
            }
        )
    elif isinstance(event, AnswersAgain):
        printing.write_event({"event": "answers", "member": event.member_id})
    elif isinstance(event, TokenTrouble):
        printing.write_event({"event": "token", "reason": event.reason})
    else:
        printing.write_event(
            {
                "event": "restarted",
                "member": event.member_id,
                "reason": event.reason,
                "pid": event.pid,
            }
        )
