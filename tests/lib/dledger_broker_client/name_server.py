"""A name server whose answers a test chooses."""

import socketserver
import threading
import time
from collections.abc import Callable

from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.names import RegisterBroker, RegisterBrokerFields
from tools.groups.node_group import next_port


class NameServer:
    """Accepts registrations, and answers each as the test configures."""

    def __init__(self, port: int = 0) -> None:
        """Listen at a port; 0 takes a free one."""
        self.requests: list[RegisterBrokerFields] = []
        self.topics: list[set[str]] = []
        self.terms: list[int] = []
        self.times_s: list[float] = []
        self.answer: Callable[[RemotingCommand], bytes] = lambda request: encode_answer(
            request.opaque, 0
        )
        self.open = self.connections = 0
        self.closes = False
        """Whether the server closes a connection after its answer."""
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                owner.open += 1
                owner.connections += 1
                decoder = FrameDecoder()
                try:
                    while data := self.request.recv(65536):
                        for command in decoder.feed(data):
                            owner.take(command)
                            self.request.sendall(owner.answer(command))
                            if owner.closes:
                                return
                except OSError:
                    pass  # the member has closed the connection
                finally:
                    owner.open -= 1

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        self._server = Server(("127.0.0.1", port or next_port()), Handler)
        host, port = self._server.server_address[:2]
        self.address = f"{host!s}:{port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def addresses(self) -> list[str]:
        """The addresses that were registered, in their order."""
        return [request.broker_addr for request in self.requests]

    @property
    def ids(self) -> list[int]:
        """The broker ids that were registered, in their order."""
        return [request.broker_id for request in self.requests]

    def take(self, command: RemotingCommand) -> None:
        """Remember a registration."""
        table = RegisterBroker.from_json(command.body).topic_config_serialize_wrapper
        self.topics.append({*table.topic_config_table})
        self.terms.append(table.data_version.state_version)
        self.times_s.append(time.monotonic())
        self.requests.append(RegisterBrokerFields.from_ext(command.ext_fields))

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
