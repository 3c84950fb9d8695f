"""Scripts for a stage, with one command per line.

    > group n0=1,1 n1=1 n2= push=2      logs as the terms of their entries, and settings
    > group n0= n1= n2= voters=2        the last member is not in the group, but may be added
    > change n0 add n2                  or promote, demote, remove
    > time out n0                       until n0 sends pre-votes, or a leader steps down
    > elect n0                          time out, and deliver everything; prints only final states
    > quietly deliver                   any command; prints only final states
    > deliver                           all messages, with all messages that they cause
    > deliver n0>n1 Append              messages of this kind from n0 to n1; `1 of` for the first
    > lose n0>*                         all messages of n0 in transit
    > copy n1                           copy the disk of n1; `restore n1` rolls it back
    > forge HeartBeatRequest n1>n0 term=1 committed_index=-1 round=1

A line that begins with `>` is a command. The lines below it show its effect.
"""

import typing
from collections.abc import Callable
from typing import Any, Final

from dledger_node.raft import messages
from dledger_node.raft.messages import Message, PushResult, VoteResult
from dledger_sim.stage.stage import Stage

SETTINGS: Final = {
    "heartbeat": "heartbeat_ticks",
    "election": "election_ticks",
    "push": "push_entries_max",
    "window": "inflight_ranges_max",
    "lease": "lease_ticks",
    "lag": "transfer_lag_entries_max",
    "recall": "recall_ticks",
    "learner-lag": "promotion_lag_entries_max",
}
QUIET: Final = ("quietly", "elect", "live")
KINDS: Final = {kind.__name__: kind for kind in typing.get_args(messages.Message)}
RESULTS: Final = {result.name: result for result in (*VoteResult, *PushResult)}


class Script:
    """Performs commands one after another."""

    def __init__(self) -> None:
        self._stage: Stage | None = None

    def perform(self, command: str) -> list[str]:
        """Perform a command; return the lines of its effect. Raises ValueError if unknown."""
        verb, *words = command.split()
        if verb == "group":
            self._stage = _group(words)
            return []
        assert self._stage is not None, "a script begins with its group"
        quietly = verb in QUIET
        if verb == "quietly":
            verb, *words = words
        if verb not in COMMANDS:
            raise ValueError(f"there is no command {verb!r}: {', '.join(COMMANDS)}")
        COMMANDS[verb](self._stage, words)
        lines, self._stage.lines = self._stage.lines, []
        return self._stage.states() if quietly else lines


def performed(text: str) -> str:
    """Perform a script; return its text with the current effect below each command."""
    script, lines, head = Script(), [], True
    for line in text.splitlines():
        if line.startswith("> "):
            head = False
            lines += ["", line, *script.perform(line.removeprefix("> "))]
        elif head or line.startswith("# "):
            lines += [line] if head else ["", line]
    return "\n".join(_without_doubled_blanks(lines)) + "\n"


def _without_doubled_blanks(lines: list[str]) -> list[str]:
    return [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]


def _group(words: list[str]) -> Stage:
    settings: dict[str, Any] = {"heartbeat_ticks": 5, "election_ticks": 20}
    logs: list[list[int]] = []
    terms: list[int] = []
    flushes, voter_count = True, 0
    for word in words:
        name, _, value = word.partition("=")
        if name in SETTINGS:
            settings[SETTINGS[name]] = int(value)
        elif name == "prefer":
            settings["preferred_leader_ids"] = tuple(value.split(","))
        elif name == "voters":
            voter_count = int(value)
        elif name == "flush":
            flushes = value != "by-hand"
        else:
            log, _, term = value.partition("@")
            logs.append([int(one) for one in log.split(",") if one])
            terms.append(int(term) if term else max(logs[-1], default=0))
    return Stage(
        logs, flushes=flushes, terms=terms, voter_count=voter_count or len(logs), **settings
    )


def _chosen(stage: Stage, words: list[str]) -> list[Message]:
    """Return the messages in transit that `[1 of] n0>n1 [Kind]` selects; at least one."""
    first_only = words[:2] == ["1", "of"]
    link, *kinds = words[2:] if first_only else words
    sender, receiver = link.split(">")
    found = [
        message
        for message in stage.travelling
        if sender in ("*", message.sender)
        and receiver in ("*", message.receiver)
        and type(message).__name__.startswith(tuple(kinds) or "")
    ]
    assert found, f"no message in transit matches {' '.join(words)}"
    return found[:1] if first_only else found


def _deliver(stage: Stage, words: list[str]) -> None:
    stage.deliver(_chosen(stage, words) if words else None)


def _repeat(stage: Stage, words: list[str]) -> None:
    stage.travelling += _chosen(stage, words)


def _delay(stage: Stage, words: list[str]) -> None:
    """Put messages after all others in transit."""
    for message in _chosen(stage, words):
        stage.travelling.remove(message)
        stage.travelling.append(message)


def _elect(stage: Stage, words: list[str]) -> None:
    stage.time_out(words[0])
    stage.deliver()


def _live(stage: Stage, words: list[str]) -> None:
    """Let ticks pass for all running members, and deliver everything after each tick."""
    for _ in range(int(words[0])):
        for member_id in stage.living():
            stage.tick(member_id, 1)
        stage.deliver()


def _forge(stage: Stage, words: list[str]) -> None:
    kind, link, *fields = words
    sender, receiver = link.split(">")
    values: dict[str, Any] = {}
    for field in fields:
        name, _, value = field.partition("=")
        values[name] = RESULTS[value] if value in RESULTS else int(value)
    message = KINDS[kind](sender=sender, receiver=receiver, **values)
    stage.travelling.appendleft(message)
    stage.deliver([message])


COMMANDS: Final[dict[str, Callable[[Stage, list[str]], None]]] = {
    "append": lambda stage, words: stage.append(words[0], int(words[1])),
    "change": lambda stage, words: stage.change(*words),
    "copy": lambda stage, words: stage.copy(words[0]),
    "crash": lambda stage, words: stage.crash(words[0]),
    "cut": lambda stage, words: stage.cut(words[0]),
    "delay": _delay,
    "deliver": _deliver,
    "doom": lambda stage, words: stage.doom(words[0], words[1]),
    "elect": _elect,
    "flush": lambda stage, words: stage.flush(words[0]),
    "forge": _forge,
    "heal": lambda stage, _: stage.heal(),
    "live": _live,
    "link": lambda stage, words: stage.link(words[0], words[1], lost=words[2] == "lost"),
    "lose": lambda stage, words: stage.lose(_chosen(stage, words)),
    "read": lambda stage, words: stage.read(words[0], words[1]),
    "repeat": _repeat,
    "restore": lambda stage, words: stage.restore(words[0]),
    "show": lambda stage, _: stage.show(),
    "start": lambda stage, words: stage.start(words[0]),
    "tick": lambda stage, words: stage.tick(words[0], int(words[1])),
    "time": lambda stage, words: stage.time_out(words[1]),
    "transfer": lambda stage, words: stage.transfer(words[0], words[1]),
}
