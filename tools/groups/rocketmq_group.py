"""`RocketmqGroup`: RocketMQ's own brokers in DLedger mode."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from dledger_formats.peers import split_address
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand, encode
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.names import MASTER_ID, ClusterInfo
from tools import java_rocketmq
from tools.groups.java_process import start_java
from tools.groups.ports import consecutive_ports, free_ports
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
NAME: Final = "RaftNode00"
FILE_BYTES: Final = 256 << 20
ASK_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.2
START_S: Final = 180.0
"""Time for four JVMs to start, and for the master to apply its log and register itself."""
SEND_THREADS: Final = 16
"""The number in the example of a DLedger group in RocketMQ's distribution."""
_ports: Iterator[int] = free_ports()


class RocketmqGroup(MemberProcesses):
    """Brokers n0, n1 and n2, usable once a name server returns their master."""

    def __init__(self, folder: Path, version: str, registered_at: str) -> None:
        """`registered_at` is a name server's address. Raises JavaMissingError."""
        super().__init__(folder, {f"n{k}": f"127.0.0.1:{next(_ports)}" for k in range(3)})
        self._class_path = java_rocketmq.find_broker(version)
        self._registered_at = registered_at
        # A broker also listens two below its port, and one above.
        self._broker_ports = {member: consecutive_ports(4) + 2 for member in self.peers}

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        home = self.folder / f"home-{member}"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_broker.xml").write_text("<configuration/>")  # 4.9 ends without it
        settings = home / "broker.conf"
        settings.write_text("".join(f"{k}={v}\n" for k, v in self._settings(member).items()))
        return start_java(
            self._class_path, MAIN, ["-c", str(settings)], home=home, log=log,
            options=("-Xmx1g", f"-Drocketmq.home.dir={home}"),
        )  # fmt: skip

    def _settings(self, member: str) -> dict[str, object]:
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": NAME,
            "brokerIP1": "127.0.0.1",
            "listenPort": self._broker_ports[member],
            "namesrvAddr": self._registered_at,
            "storePathRootDir": self.store_folder(member),
            "storePathCommitLog": self.store_folder(member) / "commitlog",
            "mappedFileSizeCommitLog": FILE_BYTES,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": NAME,
            "dLegerPeers": ";".join(self.servers),
            "dLegerSelfId": member,
            "sendMessageThreadPoolNums": SEND_THREADS,
            "diskMaxUsedSpaceRatio": 95,  # above that, the broker deletes expired files
        }

    def wait_until_in_order(self) -> str:
        """Wait until every member is registered, one of them as the master; return that one."""

        def master_of_all() -> str | None:
            addresses = self._registered()
            return addresses.get(MASTER_ID) if len(addresses) == len(self.peers) else None

        address = wait_for(
            master_of_all, "all members are registered", timeout_s=START_S, poll_s=POLL_S
        )
        port = split_address(address)[1]
        [master] = [member for member, each in self._broker_ports.items() if each == port]
        return master

    def _wait_until_usable(self) -> None:
        wait_for(
            lambda: MASTER_ID in self._registered(), "a master is registered",
            timeout_s=START_S, poll_s=POLL_S,
        )  # fmt: skip

    def _registered(self) -> dict[int, str]:
        """Return the addresses of the registered members by their broker ids."""
        for member, process in self._processes.items():
            if process.poll() is not None:
                raise AssertionError(f"{member} exited by itself with code {process.returncode}")
        request = encode(RemotingCommand(code=int(RequestCode.GET_BROKER_CLUSTER_INFO), opaque=1))
        host, port = split_address(self._registered_at)
        decoder = FrameDecoder()
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=ASK_TIMEOUT_S) as connection,
        ):
            connection.sendall(request)
            while data := connection.recv(1 << 16):
                for answer in decoder.feed(data):
                    broker = ClusterInfo.from_json(answer.body).broker_addr_table.get(NAME)
                    addresses = broker.broker_addrs if broker is not None else {}
                    return {int(number): address for number, address in addresses.items()}
        return {}
