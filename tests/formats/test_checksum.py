import random
import subprocess
import sys
import zlib

from dledger_formats.log.checksum import crc32


def test_the_checksum_equals_zlib_s_crc32() -> None:
    choices = random.Random(1)
    for size in (0, 1, 48, 1024, 70_000):
        data = choices.randbytes(size)
        assert crc32(data) == zlib.crc32(data)
        assert crc32(memoryview(data), 7) == zlib.crc32(data, 7)


def test_the_standard_library_s_crc32_is_used_without_zlib_ng() -> None:
    script = (
        "import sys; sys.modules['zlib_ng'] = None\n"
        "import zlib; from dledger_formats.log.checksum import crc32; print(crc32 is zlib.crc32)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"
