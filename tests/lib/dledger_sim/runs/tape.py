"""A tape: a run as a JSON file with its conditions, acts, and choices that were not calm."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dledger_sim.faults.acts import Act
from dledger_sim.group.conditions import Conditions
from dledger_sim.runs.choices import TapedChoices


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """Everything that determines a run."""

    conditions: Conditions
    end_us: int
    """Time at which all faults end and the recovery begins."""
    acts: tuple[tuple[int, Act], ...]
    """Each with its time in µs."""
    choices: TapedChoices
    rule: str = ""
    """The rule that this run broke when it was recorded."""
    note: str = ""
    """The origin of the tape, for a reader."""
    mutant: str = ""
    """The planted bug that this tape finds; empty for a bug that was real."""

    @property
    def choice_count(self) -> int:
        """Number of choices that are not calm."""
        return sum(map(len, self.choices.values()))

    def to_json(self) -> str:
        """Return the tape as JSON with one act or site per line, for readable diffs."""
        head: dict[str, Any] = {
            "note": self.note,
            "rule": self.rule,
            "mutant": self.mutant,
            "conditions": self.conditions.to_json(),
            "end_us": self.end_us,
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        acts = [f"    {json.dumps([time_us, *act])}" for time_us, act in self.acts]
        sites = [
            f"    {json.dumps(site)}: {json.dumps(sorted(numbered.items()))}"
            for site, numbered in sorted(self.choices.items())
        ]
        lines.append('  "acts": [\n' + ",\n".join(acts) + "\n  ]")
        lines.append('  "choices": {\n' + ",\n".join(sites) + "\n  }")
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Create a tape from the result of `to_json`."""
        read = json.loads(text)
        return cls(
            conditions=Conditions.from_json(read["conditions"]),
            end_us=read["end_us"],
            acts=tuple((act[0], tuple(act[1:])) for act in read["acts"]),
            choices={site: dict(numbered) for site, numbered in read["choices"].items()},
            rule=read["rule"],
            note=read["note"],
            mutant=read["mutant"],
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tape from a file."""
        return cls.from_json(path.read_text())
