"""The state machines, by their names in the setting `state_machine`."""

from collections.abc import Mapping
from typing import Final

from dledger_formats.settings import NO_STATE_MACHINE, STATE_MACHINES
from dledger_node.state_machine.machine import StateMachine
from dledger_node.state_machine.register import Register

_MACHINES: Final[Mapping[str, type[StateMachine]]] = {"register": Register}

assert {NO_STATE_MACHINE, *_MACHINES} == set(STATE_MACHINES)


def make(name: str) -> StateMachine:
    """Make the state machine of this name, in its initial state."""
    return _MACHINES[name]()
