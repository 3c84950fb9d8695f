"""Healing: a member with a damaged store mends it in place from a peer, in service if it can.

Otherwise it sets the damage aside and re-fetches it from its leader.

mending      fetch, verify and write damaged committed entries; why that is safe
file_writing  write fetched bytes into a data file, and read them back
kept_times   when a data file was last written, which mending does not change
live_mending  the same in a store that is open
waiting_ranges  damaged ranges that wait for their next attempt
peer_bytes   read stored bytes of the peers
http_peer    ask one peer for them over HTTP
closed_log   serve stored bytes to the peers while out of service
repair       while out of service: survey the damage, ask the peers, decide, set files aside
repair_plan  the decision and its reasons; no IO
set_aside    files that are set aside until the member is healed
sound_part   how much of a damaged log can be kept
progress     back in service: watch the member until it is healed, then delete the files
"""
