"""Real Java DLedger as processes on loopback: groups of members, and its own client.

What belongs here: starting, stopping, killing and asking. What is right is for the tests to say.
"""
