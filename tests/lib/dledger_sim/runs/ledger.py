"""The ledger of campaigns: one JSON object per line."""

import datetime as dt
import json
import subprocess
from pathlib import Path
from typing import Any

from dledger_sim.runs.campaign import Totals

DAY_S = 86_400
YEAR_S = 365.25 * DAY_S


def append(
    path: Path, commit: str, seeds: range, events_per_seed: int, totals: Totals, wall_s: float
) -> None:
    """Add a campaign; `commit` was read at its begin."""
    line = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "first_seed": seeds.start,
        "seeds": totals.seed_count,
        "events_per_seed": events_per_seed,
        "events": totals.event_count,
        "faults": totals.fault_count,
        "virtual_s": round(totals.virtual_s),
        "leaders": totals.leader_count,
        "committed": totals.committed_count,
        "acknowledged": totals.acknowledged_count,
        "violations": len(totals.failures),
        "cpu_s": round(totals.cpu_s, 1),
        "wall_s": round(wall_s, 1),
    }
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def report(path: Path) -> str:
    """Return the totals of all campaigns."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("seeds", "events", "faults", "leaders", "committed", "acknowledged", "violations")
    sums = {name: sum(line[name] for line in lines) for name in names}
    virtual_s = sum(line["virtual_s"] for line in lines)
    cpu_s = sum(line["cpu_s"] for line in lines)
    told = [f"{name:>14} {value:>18,}" for name, value in sums.items()]
    told += [
        f"{'campaigns':>14} {len(lines):>18,}",
        f"{'virtual time':>14} {virtual_s / DAY_S:>13,.1f} days ({virtual_s / YEAR_S:.3f} years)",
        f"{'processor time':>14} {cpu_s / 3600:>13,.2f} hours",
    ]
    return "\n".join(told)


def commit(ledger: Path) -> str:
    """Return the current commit, with "-dirty" if a file other than the ledger differs from it.

    The ledger may differ because successive campaigns add lines to it.
    """
    described = _git("describe", "--always", "--abbrev=10").stdout.strip()
    others = _git("diff", "--quiet", "HEAD", "--", ".", f":(exclude){ledger}")
    return f"{described or 'unknown'}{'-dirty' if others.returncode else ''}"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
