"""Tables of the state are looked at while another thread applies entries to them."""

import gc
import itertools
from collections.abc import Callable

import pytest

from dledger_broker.metrics import BrokerCounters
from dledger_broker.registration import routes
from dledger_broker.settings import BrokerSettings
from dledger_broker.state import changes, tables_shown
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state_figures import BEGIN_S, StateFigures
from dledger_broker_log.states import group_set, joined, offsets, topic_set
from dledger_formats.settings import NodeSettings

COUNT = 100
NODE = NodeSettings(group="g", self_id="n0", peers={"n0": "h:1"}, store_base_dir="/nowhere")
SETTINGS = BrokerSettings(node=NODE, addresses={"n0": "10.0.0.1:1"}, name="b", group_address="")


class Growing:
    """A state that grows by a topic, a group, a client and an offset at a time."""

    def __init__(self) -> None:
        self.state = BrokerState()
        self._numbers = itertools.count()
        for _ in range(COUNT):
            self.grow()

    def grow(self) -> None:
        number = next(self._numbers)
        name, tables = f"x{number}", self.state.tables
        for record in (
            topic_set(name, 1), group_set(name), joined("c", name), joined(f"c{number}", "x0"),
            offsets(name, name, (0, 0)),
        ):  # fmt: skip
            changes.make(tables, record, number, 1)


def figures(state: BrokerState) -> None:
    now_s = itertools.count(step=2 * BEGIN_S)
    StateFigures(lambda: state, BrokerCounters(), lambda: float(next(now_s))).tick()


LOOKS: dict[str, Callable[[BrokerState], object]] = {
    "topics": lambda state: tables_shown.topics(state.tables),
    "groups": lambda state: tables_shown.groups(state.tables),
    "consumer offsets": lambda state: tables_shown.consumer_offsets(state.tables),
    "names of topics": lambda state: routes.topic_list(SETTINGS, state.tables.topics.by_name),
    "clients of all groups": BrokerState.clients_by_group,
    "clients of a group": lambda state: state.client_ids("x0"),
    "consumers of a group": lambda state: state.consumers("x0"),
    "figures": figures,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
def test_a_table_is_copied_in_one_step(look: Callable[[BrokerState], object]) -> None:
    """A collection of garbage within a step lets another thread apply an entry in its middle."""
    growing = Growing()
    state = growing.state

    def grow(_phase: str, _info: dict[str, int]) -> None:
        growing.grow()

    thresholds = gc.get_threshold()
    gc.callbacks.append(grow)
    gc.set_threshold(1, 1, 1)
    try:
        look(state)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(grow)
    assert len(state.tables.topics.by_name) >= COUNT
