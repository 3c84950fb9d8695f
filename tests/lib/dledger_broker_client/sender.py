"""`Sender`: many sends in flight at one member."""

import threading
from typing import Final

from dledger_broker_client.client import BrokerClient, send_ext
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode

SENDS: Final = 3000


class Sender(threading.Thread):
    """Keeps sends in flight at one member, and keeps their answers."""

    def __init__(self, address: str, topic: str, sends: int = SENDS) -> None:
        super().__init__()
        self._sends = sends
        self._address, self.topic = address, topic
        self.sent = threading.Event()
        """Set once a third of the sends have begun."""
        self.answers: list[RemotingCommand] = []

    def run(self) -> None:
        """Send message n with the body n."""
        with BrokerClient(self._address) as client:
            opaques = []
            for n in range(self._sends):
                opaques.append(
                    client.begin(RequestCode.SEND_MESSAGE_V2, send_ext(self.topic), b"%d" % n)
                )
                if n >= 500:
                    self.answers.append(client.answer(opaques[n - 500]))
                if n == self._sends // 3:
                    self.sent.set()
            self.answers += [client.answer(opaque) for opaque in opaques[-500:]]
