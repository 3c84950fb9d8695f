"""The program that `dledger-broker` builds on a member."""

from collections.abc import Sequence

from prometheus_client.registry import Collector

from dledger_broker.broker import Broker
from dledger_broker.metrics import BrokerCollector, BrokerCounters
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.http.broker_status import BrokerStatus, NameServerStatus
from dledger_node.closing import aclosed_on_error
from dledger_node.embedding import Member
from dledger_node.state_machine.machine import NamedMachine


class BrokerProgram:
    """Implements `dledger_node.embedding.Program`."""

    machine = NamedMachine("broker", lambda _: BrokerState())

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._counters = BrokerCounters()
        self._broker: Broker | None = None

    @property
    def collectors(self) -> Sequence[Collector]:
        """The broker's metrics."""
        return (BrokerCollector(self._counters),)

    def report(self) -> BrokerStatus:
        """Return what `/status` shows of the broker."""
        settings, broker, counters = self._settings, self._broker, self._counters
        reason = "the broker has not started yet" if broker is None else broker.why_not_serving
        return BrokerStatus(
            name=settings.name,
            cluster=settings.cluster,
            address=broker.addresses.published if broker else "",
            serving=not reason,
            reason=reason,
            topics=counters.values["topics"],
            consumer_groups=counters.values["consumer_groups"],
            unbuilt_entries=counters.values["unbuilt_entries"],
            name_servers=[
                NameServerStatus(
                    address=address,
                    registered=is_registered,
                    problem=counters.registration_problems.get(address, ""),
                )
                for address, is_registered in counters.registered.items()
            ],
        )

    async def serve(self, member: Member) -> None:
        """Serve clients until cancelled."""
        broker = self._broker = Broker(self._settings, member, self._counters)
        async with aclosed_on_error(broker.close):
            try:
                await broker.run()
            finally:
                self._broker = None

    async def drain(self) -> None:
        """Answer the requests that were read, and the pulls that are held; read no further ones."""
        if self._broker is not None:
            await self._broker.drain()
