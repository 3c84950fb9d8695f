"""Healing: what a member does about a damaged store.

healer      out of service: survey the damage, ask the other members, decide, set files aside
decision    the pure decision, and its reasons
set_aside   files that are set aside until the member is whole
sound_part  how much of a damaged log can be kept
progress    back in service: how far the member is, and when it is whole
"""
