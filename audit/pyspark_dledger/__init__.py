"""The Spark data source `dledger`: the logs of a DLedger group's members as rows, one an entry.

What belongs here: reading segments over the members' HTTP, and decoding and judging their bytes in
numpy. What does not: questions that need more than one segment, or more than one member; those are
the audit's. Only `source` imports Spark, and says how to register it.
"""
