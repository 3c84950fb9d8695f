"""Audits on more than one machine: Spark's executors, their number, settings and failures.

The code that reads and judges the logs is elsewhere, and does not know of executors.
"""
