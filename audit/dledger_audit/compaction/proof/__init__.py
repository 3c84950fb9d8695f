"""`dledger-audit verify-compaction`: is an archive the compacted log, and nothing else?

It shares no decision with `compact`: what must be in the archive is worked out another way, from
the sources' entries alone, and the archive's files are read by a walk of their own. It shares the
decoders of keys, and the reader of members' logs.

    found      the findings
    walk       the archive's entries, with every check of their form
    expected   what must become of each entry: buckets of keys on disk, one after the other
    verify     the comparison
"""
