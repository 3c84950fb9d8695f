"""The checks, one per module, each a function from DataFrames to a DataFrame of findings.

`chunks` is the only pass over all entries. The checks work on its result, which is 4096 times
smaller; only `agreement` reads entries again, those of the chunks that differ. `findings` defines
the columns of a finding.
"""
