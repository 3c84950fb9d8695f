"""Clients of a running `tools.groups.NodeGroup`: appends through failing leaders, raw requests."""
