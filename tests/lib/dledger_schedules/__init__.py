"""Schedules of the store's threads: real threads over real files, one at a time, in any order.

What belongs here: the scheduler, the work of a member's threads, what a crash leaves of their
files, and the judge. What does not: how many schedules to run, which the tests decide.
`python -m dledger_schedules` runs any number; `--count 1 --seed S --trace` shows one.

    scheduler    threads that run one at a time
    strategies   which of them is next
    places       the lines at which threads meet
    points       the locks, IO calls and lines at which another thread may continue
    member       the loop, flushes, upkeep, preallocation, zeros ahead, and readers
    disk         the states of the files that a crash may leave
    promises     the logs that may be found, and the judge
    schedule     one schedule, from its seed to its judgement
    hunt         hunts of planted bugs
"""
