"""Requests to the leader: what a response means, and when a request may be resent.

call          one request and its attempts; does no IO
verdicts      what a response means for its request; does no IO
dispatcher    sends calls to the current leader, and searches for it
stalled       leaves a leader that does not respond
slots         the slots of requests, which bound how many are under way
call_queue    calls that wait, in their order
unsent        the calls that wait for a leader, or for their next attempt
member_reads  sends reads to a member that need not lead
statistics    the appends of one client, counted
"""
