"""A group of real nodes as processes on loopback, for tests and benchmarks.

What belongs here: starting, stopping, killing and asking. What is right is for the tests to say.
"""
