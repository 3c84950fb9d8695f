"""`dledger-audit compact` and `verify-compaction`: keep the last entry of each key.

What belongs here: which entries stay, the archive that holds them, and the proof that an archive is
right. What does not: reading and checking members' files and the keys of entries, which are in
`pyspark_dledger`, and any change of a member's log: sources are only read.

    command      the command line
    decision     which entries stay, and up to which index a log may be compacted
    copies       what a run must know of all voters
    live         the one pass over all keys, on Spark
    archive      the archive's folder: which files are valid, and how they are replaced
    names        the names in that folder that are its own; pure
    writer       the archive's files
    hadoop_archive  archives in a Hadoop file system: copied here, proven, and copied back
    compact      the whole run
    amounts      how many bytes of each segment are live, dead and tombstones
    proof        `verify-compaction`; it shares the decoders and the reading with the modules
                 above, and no decision which entries stay
"""
