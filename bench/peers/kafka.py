"""Kafka: three brokers that are controllers too (KRaft), and the Java producer and consumer."""

import subprocess
from itertools import islice
from pathlib import Path
from typing import IO

from bench.peers.client import Client, ClientError
from bench.peers.peer import CLIENT_LOG, Description, Peer, PeerGroup
from tools.groups.ports import free_ports
from tools.groups.processes import MemberProcesses
from tools.peer_programs import kafka_class_path

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FORMAT_TIMEOUT_S = 60.0
# As in Kafka's own start script, with the heap of the client and of each broker bounded.
JVM_OPTIONS = (
    "-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{client},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{client}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
"""
FLUSH = "log.flush.interval.messages=1\n"
_ports = free_ports()


class KafkaGroup(PeerGroup):
    """Brokers n0, n1, n2 with the node ids 1, 2, 3."""

    def __init__(self, folder: Path, class_path: str, *, flush: bool) -> None:
        """Write the brokers' properties; their folders are formatted when they first start."""
        addresses = [f"127.0.0.1:{port}" for port in islice(_ports, 6)]
        super().__init__(folder, {f"n{k}": addresses[k] for k in range(3)})
        self._class_path = class_path
        voters = ",".join(f"{k + 1}@{addresses[3 + k]}" for k in range(3))
        for k, member in enumerate(self.peers):
            properties = PROPERTIES.format(
                node=k + 1,
                voters=voters,
                client=addresses[k],
                controller=addresses[3 + k],
                folder=self.store_folder(member),
            )
            self._properties(member).write_text(properties + FLUSH * flush)

    def java(self, program: str, *arguments: str) -> list[str]:
        """Return the command that runs a program of the class path."""
        return ["java", *JVM_OPTIONS, "-cp", self._class_path, program, *arguments]

    def _properties(self, member: str) -> Path:
        return self.folder / f"{member}.properties"

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        properties = str(self._properties(member))
        if not self.store_folder(member).exists():
            self._format(properties, log)
        return subprocess.Popen(self.java("kafka.Kafka", properties), stdout=log, stderr=log)

    def _format(self, properties: str, log: IO[bytes]) -> None:
        command = self.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties)
        try:
            subprocess.run(command, check=True, timeout=FORMAT_TIMEOUT_S, stdout=log, stderr=log)
        except subprocess.SubprocessError as error:
            raise ClientError(f"a broker's folder was not formatted: {error}") from error


class KafkaUnflushed(Peer):
    """Kafka with its default settings and acks=all."""

    description = Description(
        name="kafka-unflushed",
        promise="in the memory (page cache) of all in-sync replicas, at least 2",
        client="KafkaProducer, acks=all, 1 in flight: linger.ms=0, else batches of an eighth of "
        "what is in flight; KafkaConsumer, fetches of 1 to 8 MiB, 10,000 records a poll",
    )
    warm_up_s = 60.0
    flush = False

    def __init__(self) -> None:
        """Find the jars; raises PeerMissingError."""
        self._class_path = kafka_class_path()

    def group_in(self, folder: Path) -> KafkaGroup:
        """Return a group of three brokers."""
        return KafkaGroup(folder, self._class_path, flush=self.flush)

    def client_of(self, group: MemberProcesses) -> Client:
        """Start `java KafkaPeer`."""
        assert isinstance(group, KafkaGroup)
        command = group.java("KafkaPeer", ",".join(group.peers.values()))
        return Client(command, group.folder / CLIENT_LOG)


class Kafka(KafkaUnflushed):
    """Kafka with acks=all that flushes before it acknowledges."""

    description = Description(
        name="kafka",
        promise="flushed by all in-sync replicas, at least 2 (log.flush.interval.messages=1)",
        client=KafkaUnflushed.description.client,
    )
    flush = True
