"""Faults under a real store: power cuts, kills, every crash state, corruption, bad blocks.

What belongs here: writing to a store while saying what was promised, breaking what is under it, and
judging what is left. How many, and how much must be lost where nothing is synced, is for the tests
to say; `python -m dledger_store_faults` runs as many as one likes.

    story       a member's writing, told line by line      power     file systems that lose power
    account     what the lines promise; the judge          kills     processes that end at once
    contents    bodies that follow from index and term     children  processes that tell a story
    tally       what a run counted                         crash     every state a crash may leave
    disk_model  which states these are                     corrupt   bytes that change by themselves
    grid        one-block faults under a group of three    members   such a group in this process
    bad_blocks  a disk that gets a block wrong             block_faults   the judge of the grid
"""
