"""Event loops that run a test's callbacks as a busy machine does, to find races of tests.

What belongs here: the selector that does so, and the pytest plugin that gives it to the loops of
asyncio in the process of the tests. Other processes, and uvloop's loops, are not changed.
"""
