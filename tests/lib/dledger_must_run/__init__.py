"""Test runs that must not skip every test, such as those of CI.

What belongs here: the pytest plugin that fails such a run, and how a test ends that lacks something
which such a run must have. Each test declares itself what it needs, and is skipped without it.
"""
