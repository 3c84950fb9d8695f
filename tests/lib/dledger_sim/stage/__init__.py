"""Cores without randomness: a test or a script controls their peers, clocks and disks.

- `driver`: one core; a test plays everything else
- `changing`: a leader that is ready for membership changes
- `stage`: several cores and the messages between them
- `script`: the commands of the transcripts in tests/raft/transcripts
"""
