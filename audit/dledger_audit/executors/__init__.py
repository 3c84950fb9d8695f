"""Audits on more than one machine: Spark's executors, how many, with what, and what if none come.

What reads and judges the logs is elsewhere and knows nothing of executors.
"""
