"""Check that entries are undamaged, for each member by itself."""

from typing import Final

from pyspark.sql import DataFrame

from dledger_audit.checks.findings import of_flags
from dledger_audit.verdict import CRITICAL, WARNING
from pyspark_dledger.layout import Flag

SEVERITIES: Final = {
    Flag.BAD_MAGIC: CRITICAL,
    Flag.BAD_SIZE: CRITICAL,
    Flag.BAD_INDEX: CRITICAL,
    Flag.BAD_POS: CRITICAL,
    Flag.BAD_BODY_CRC: CRITICAL,
    Flag.BAD_CHAIN_CRC: CRITICAL,
    Flag.LOST_ENTRY: CRITICAL,
    Flag.SHORT_FILE: CRITICAL,
    # A node rebuilds index files from the data files when it finds them wrong.
    Flag.INDEX_FILE_DIFFERS: WARNING,
}


def integrity(chunks: DataFrame) -> DataFrame:
    """Find damage: one finding per member, segment and kind."""
    return of_flags(chunks, SEVERITIES)
