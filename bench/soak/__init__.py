"""A long run of a real group under everything at once: `python -m bench.soak`.

- `appends`: clients that append, and remember what was acknowledged
- `readers`: clients that read and tail the log, and compare what they get
- `strangers`: hostile connections, in a process of their own
- `strikes`: kills, freezes, rot, transfers of the leadership, and a member that joins and leaves
- `watch`: memory and turns of the event loops of all members
- `judge`: the rules, and the check of the whole log at the end
- `run`: puts the parts together
"""
