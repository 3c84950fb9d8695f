"""Ends of remoting connections for tests: a listener with limits, and raw callers.

The tests decide what is right; this package only sends and receives.
"""
