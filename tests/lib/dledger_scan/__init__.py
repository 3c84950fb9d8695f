"""Scans of whole logs without Spark or HTTP, and what they found.

What belongs here: reading `dledger_logs` through `pyspark_dledger`. What does not: expectations.
"""
