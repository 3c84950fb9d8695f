"""What earlier audits read: digests of whole chunks, kept as Parquet between audits.

What was committed never changes, so a chunk that was read twice has the same digests. And an audit
that trusts the earlier ones need not read all of it again.
"""
