"""Scans of whole logs with `pyspark_dledger`, without Spark or HTTP.

What belongs here: reading logs of `dledger_logs`. Expectations belong in the tests.
"""
