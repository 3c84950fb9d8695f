"""Groups of real members as processes on loopback: this node's, and Java DLedger's.

What belongs here: starting, stopping, killing and querying members, for benchmarks and tests alike.
Expectations belong in the tests, figures in the benchmarks.
"""
