"""One question a module, each a function from DataFrames to a DataFrame of findings.

`chunks` is the one pass over all entries; the others work on its result, which is 4096 times
smaller, and only `agreement` goes back to entries, of those chunks that differ. What a finding
looks like is in `findings`.
"""
