"""Hand-made ends of remoting connections, for tests: a listener with limits, and raw callers.

What belongs here: what tests of the wire share. It decides nothing.
"""
