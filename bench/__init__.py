"""Benchmarks, run from the repository root as `python -m bench.NAME`. They are not shipped."""
