"""What earlier audits read: digests of whole chunks, kept as Parquet between audits.

What was committed never changes, so a chunk that was read twice has the same digests. And an audit
that trusts the earlier ones need not read all of it again.

    history_file    what earlier audits read, as a file
    audit           an audit that knows the earlier ones
    remembering     the pass over the logs of an audit that trusts them
    compared        the chunks that were read, compared with the known ones
    chunks          chunks as arrays
    hadoop_history  the history in a Hadoop file system
"""
