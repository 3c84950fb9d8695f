"""Runs: one seed or tape from start to end, campaigns of many seeds, and their results.

- `simulation`: runs, records and replays
- `seeds`, `drawing`: the conditions that a seed draws
- `choices`: all random choices of a run, drawn, recorded or replayed
- `tape`, `shrink`: a run as a JSON file, and its reduction
- `campaign`, `ledger`: many seeds on all cores, and the record of campaigns
- `coverage`: the situations that a campaign reached
- `transcript`: the event log of a run
"""
