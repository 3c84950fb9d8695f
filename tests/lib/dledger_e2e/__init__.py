"""Shared code of the end-to-end tests: creating, loading, watching and damaging groups on a real
cluster. Assertions about the outcome belong in the tests.
"""
