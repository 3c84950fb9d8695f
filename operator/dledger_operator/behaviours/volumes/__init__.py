"""The volume claims of a group: who owns them, their growth, and a StatefulSet whose templates have
become too small for them. Which members have a claim is decided by `members`.
"""
