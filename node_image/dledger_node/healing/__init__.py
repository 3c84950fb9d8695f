"""Healing: a member with a damaged store sets the damage aside and re-fetches it from its leader.

repair       while out of service: survey the damage, ask the peers, decide, set files aside
repair_plan  the decision and its reasons; no IO
set_aside    files that are set aside until the member is healed
sound_part   how much of a damaged log can be kept
progress     back in service: watch the member until it is healed, then delete the files
"""
