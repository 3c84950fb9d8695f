"""Servers that speak DLedger's client protocol over real sockets and behave as a test chooses.

Belongs here: responses that a test can choose, so that the client receives each of them. Does not
belong here: Raft. The real node is tested in tests/node.
"""
