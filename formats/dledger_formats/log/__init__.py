"""DLedger's log on disk: entries, index units, file names, checksums, and special entries.

Spark executors import these modules, so they use only the standard library, except that `checksum`
uses a faster CRC-32 if one is installed.
"""
