"""What the formats of one RocketMQ send cost a broker: processor µs per message, one core.

    python -m bench.rocketmq_formats      or, for another size: --body-bytes 100

The frame is a SEND_MESSAGE_V2 as a stock Java client writes it. Each figure is the minimum of
several runs, so that other work on the machine changes it little.
"""

import argparse
import platform
import time
from collections.abc import Callable
from typing import Final

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq import consume_queue, message_id, message_record, properties
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import VERSION_5_3_3, RequestCode
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.sends import SendAnswerFields, SendMessageFields

BATCH: Final = 100
ROUNDS: Final = 200
RUNS: Final = 9
EXT: Final = {
    "a": "lab-producer", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0",
    "g": "1795306882588", "h": "0", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    "i": "KEYS\x01key0\x02UNIQ_KEY\x017F0000011F9830946E096C391E190000\x02WAIT\x01true\x02"
         "TAGS\x01TagA\x02",
}  # fmt: skip
ADDED: Final = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
HOST: Final = message_record.pack_host("10.0.0.1", 10911)


def least_us(work: Callable[[], object], per_call: int = 1) -> float:
    """Return the processor µs of one message, in the fastest of the runs."""
    fastest_s = float("inf")
    rounds = max(1, ROUNDS // per_call)
    for _ in range(RUNS):
        begun_s = time.thread_time()
        for _ in range(rounds):
            work()
        fastest_s = min(fastest_s, time.thread_time() - begun_s)
    return fastest_s / rounds / per_call * 1e6


def record_of(fields: SendMessageFields, body: bytes) -> bytearray:
    """Return the encoded record of a send, without what the leader stamps."""
    stored = (fields.properties or "").encode() + ADDED
    return message_record.encode(
        MessageRecord(
            fields.topic, fields.queue_id, 0, 0, body, stored, fields.flag, fields.sys_flag,
            fields.born_timestamp, HOST, 0, HOST, fields.reconsume_times or 0,
        )
    )  # fmt: skip


def answer_of(opaque: int) -> bytes:
    """Return the frame of the answer."""
    identity = str(message_id.MessageId(HOST, 4096))
    return encode_answer(
        opaque,
        0,
        SendAnswerFields(
            msg_id=identity,
            queue_id=1,
            queue_offset=77,
            transaction_id="7F0000011F9830946E096C391E190000",
            region="DefaultRegion",
            trace_on=True,
        ),
    )


def measure(body_bytes: int) -> dict[str, float]:
    """Return processor µs per message by step."""
    command = RemotingCommand(
        code=RequestCode.SEND_MESSAGE_V2,
        opaque=7,
        ext_fields=EXT,
        body=bytes(body_bytes),
        version=VERSION_5_3_3,
    )
    received = frames.encode(command) * BATCH
    decoder = FrameDecoder()
    fields = SendMessageFields.from_ext(EXT)
    record = record_of(fields, command.body)
    return {
        "frame decoded": least_us(lambda: decoder.feed(received), BATCH),
        "ext fields decoded": least_us(lambda: SendMessageFields.from_ext(EXT)),
        "properties decoded": least_us(lambda: properties.decode(fields.properties or "")),
        "record encoded": least_us(lambda: record_of(fields, command.body)),
        "record stamped": least_us(
            lambda: message_record.stamp(
                record, queue_offset=77, physical_offset=4096, store_timestamp=1795306882588
            )
        ),
        "answer encoded": least_us(lambda: answer_of(7)),
        "record decoded, with its tags code": least_us(
            lambda: consume_queue.tags_code(message_record.decode(record, check_crc=False))
        ),
    }


def main() -> None:
    """Measure and print one line per step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--body-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    costs = measure(arguments.body_bytes)
    print(
        f"Python {platform.python_version()}, body of {arguments.body_bytes} bytes, µs per message"
    )
    for step, cost_us in costs.items():
        print(f"  {step:36} {cost_us:6.2f}")
    total_us = sum(costs.values())
    print(f"  {'all':36} {total_us:6.2f}   {1e6 / total_us:,.0f} messages/s on one core")


if __name__ == "__main__":
    main()
