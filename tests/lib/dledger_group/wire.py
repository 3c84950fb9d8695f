"""Requests over a plain socket, for requests that no client would send."""

import socket

from dledger_formats.peers import split_address
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from tools.groups.node_group import NodeGroup


def connect(group: NodeGroup, member: str) -> socket.socket:
    """Open a connection to a member."""
    host, port = split_address(group.peers[member])
    return socket.create_connection((host, port), timeout=10)


def ask(group: NodeGroup, member: str, command: RemotingCommand) -> RemotingCommand:
    """Send one request and return the response."""
    with connect(group, member) as connection:
        connection.sendall(frames.encode(command))
        decoder = FrameDecoder()
        while True:
            answers = decoder.feed(connection.recv(65536))
            if answers:
                return answers[0]
