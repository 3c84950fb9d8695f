"""A run kept as a small JSON file: conditions, acts, and the choices that were not calm."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dledger_sim.faults.acts import Act
from dledger_sim.group.conditions import Conditions
from dledger_sim.runs.choices import TapedChoices


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """All that decides a run."""

    conditions: Conditions
    end_us: int
    """When all faults end and the group must become well again."""
    acts: tuple[tuple[int, Act], ...]
    """Each with its time in µs."""
    choices: TapedChoices
    rule: str = ""
    """Which rule this run broke when it was kept."""
    note: str = ""
    """Where it comes from, for a reader."""
    mutant: str = ""
    """The planted bug that this tape finds; empty for a bug that was real."""

    @property
    def choice_count(self) -> int:
        """How many choices are not calm."""
        return sum(map(len, self.choices.values()))

    def to_json(self) -> str:
        """One act and one site a line, so that differences can be read."""
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
        """Read what `to_json` wrote."""
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
        """Read a file."""
        return cls.from_json(path.read_text())
