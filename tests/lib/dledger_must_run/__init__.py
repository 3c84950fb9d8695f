"""Test runs that must not skip every test, such as those of CI.

What belongs here: the pytest plugin that fails such a run. Each test declares itself what it needs,
and is skipped without it.
"""
