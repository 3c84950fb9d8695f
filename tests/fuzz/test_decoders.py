"""Every decoder takes an input or refuses it with its own error, in bounded time and memory.

`--fuzz-inputs` is the number of inputs, `--fuzz-seed` the seed of their sequence. A failure names
its decoder and the whole input.
"""

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_fuzz import file_decoders, network_decoders, rocketmq_decoders
from dledger_fuzz.mutate import Mutator
from dledger_fuzz.network_decoders import Decoder, Feed

pytestmark = pytest.mark.fuzz
MEMORY_BYTES_MAX = 64 << 20
INPUT_S_MAX = 10.0
"""The most time for one input, on a machine that does other work too."""
NETWORK_INPUT_S_MAX = 0.05
"""The most processor time for one input from the network, which the event loop decodes."""
FROM_NETWORK = (*network_decoders.DECODERS, *rocketmq_decoders.DECODERS)
DECODERS = (*FROM_NETWORK, *file_decoders.DECODERS)


def own_memory_bytes() -> int:
    """Return the memory of this process without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def seconds_to_feed(feed: Feed, raw: bytes, clock: Callable[[], float]) -> float:
    """Return how long one input took by this clock."""
    begun_s = clock()
    feed(raw)
    return clock() - begun_s


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.__name__)
def test_a_decoder_takes_or_refuses_every_input(
    decoder: Decoder, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--fuzz-inputs") // len(DECODERS)
    corpus, feed = decoder()
    mutator = Mutator(corpus, pytestconfig.getoption("--fuzz-seed"))
    for raw in mutator.inputs(min(count, 1000)):
        feed(raw)
    memory_bytes = own_memory_bytes()

    from_network = decoder in FROM_NETWORK
    clock = time.thread_time if from_network else time.perf_counter
    input_s_max = NETWORK_INPUT_S_MAX if from_network else INPUT_S_MAX
    gc.freeze()  # a full collection goes through all of the tests, too
    begun_s = time.perf_counter()
    raw = b""
    try:
        for raw in mutator.inputs(count):
            if (took_s := seconds_to_feed(feed, raw, clock)) >= input_s_max:
                # The time of an interrupted processor may count, too: a slow input is slow again.
                again_s = [seconds_to_feed(feed, raw, clock) for _ in range(2)]
                assert min(took_s, *again_s) < input_s_max
    except Exception as error:
        raise AssertionError(f"{decoder.__name__}: {error!r} for {raw!r}") from error
    took_s = time.perf_counter() - begun_s

    print(f"{decoder.__name__}: {count:,} inputs in {took_s:.1f} s")
    assert own_memory_bytes() - memory_bytes <= MEMORY_BYTES_MAX
