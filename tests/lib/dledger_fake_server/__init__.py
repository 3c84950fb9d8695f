"""Servers that speak DLedger's client protocol over real sockets and do as a test tells them.

What belongs here: answers that a test can choose, so that the client meets each of them. What does
not: Raft. The real node is tested in tests/node.
"""
