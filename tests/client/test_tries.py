"""`tries.txt`, which `tries.py` writes, shows what a person sees when `dledger` goes wrong."""

from pathlib import Path


def test_the_table_has_sixty_tries_and_no_internal_error() -> None:
    table = Path(__file__).with_name("tries.txt").read_text()

    assert table.count("$ dledger ") >= 60
    assert "internal error" not in table
    assert "Traceback" not in table
