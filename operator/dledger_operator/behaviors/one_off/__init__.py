"""Custom resources that are carried out once and then keep their result: audits, switchovers."""
