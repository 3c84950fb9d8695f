"""Faults under a real store: power cuts, kills, every crash state, corruption, bad blocks.

What belongs here: writing to a store while recording its promises, breaking the disk or the process
under it, and judging the result. What does not: how many faults to run, and how much unsynced data
must be lost, which the tests decide. `python -m dledger_store_faults` runs any number.

    story         a member's writes, reported line by line
    account       the promises of these lines, and the judge
    contents      bodies that follow from index and term
    tally         the counts of a run
    power         file systems that lose power
    kills         processes that are killed
    children      processes that run a story
    crash         every disk state that a crash may leave
    disk_model    the model that yields these states
    tree_crashes  the same for a tree of folders
    corrupt       bytes that change by themselves
    grid          one-block faults under a group of three members
    members       such a group in this process
    bad_blocks    a disk with a bad block
    block_faults  the judge of the grid
"""
