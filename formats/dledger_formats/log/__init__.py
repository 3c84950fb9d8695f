"""DLedger's log on disk: entries, index units, file names, checksums, and what special entries say.

Spark executors import these modules, so they use the standard library alone. `checksum` prefers a
faster CRC-32 where it is installed.
"""
