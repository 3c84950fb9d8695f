"""Runs that must not skip everything, as those of CI.

What belongs here: the pytest plugin that fails such a run. Each test says itself what it needs,
and is skipped without it.
"""
