"""The client as a program that prints what happened, one JSON object a line, without judging it.

    program.py send SERVER TOPIC FIRST COUNT     send messages with the keys kFIRST and so on
    program.py push SERVER TOPIC GROUP           consume until the standard input ends

It is a process of its own, since the library has threads and ends the process on some errors.
"""

import json
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

PAUSE_S = 0.005
_ONE_LINE = threading.Lock()


def say(event: str, **what: object) -> None:
    """Print one event. The library calls from several threads."""
    with _ONE_LINE:
        print(json.dumps({"event": event, **what}), flush=True)


def send(server: str, topic: str, first: int, count: int) -> None:
    """Send messages one by one."""
    producer = Producer("cpp-senders")
    producer.set_namesrv_addr(server)
    producer.start()
    for number in range(first, first + count):
        message = Message(topic)
        message.set_keys(f"k{number}")
        message.set_body(f"body {number}")
        try:
            result = producer.send_sync(message)
            say("sent", key=f"k{number}", status=int(result.status), offset=result.offset)
        except Exception as error:  # the test judges
            say("failed", key=f"k{number}", text=str(error))
        time.sleep(PAUSE_S)
    producer.shutdown()


def push(server: str, topic: str, group: str) -> None:
    """Consume until the input ends."""
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(server)
    consumer.subscribe(
        topic,
        lambda message: say(
            "received",
            key=message.keys.decode(),
            body=message.body.decode(),
            queue=message.queue_id,
            offset=message.queue_offset,
        ),
    )
    consumer.start()
    say("started")
    sys.stdin.read()
    consumer.shutdown()


def main() -> None:
    """Play one part."""
    part, server, topic, *rest = sys.argv[1:]
    if part == "send":
        send(server, topic, int(rest[0]), int(rest[1]))
    else:
        push(server, topic, rest[0])


if __name__ == "__main__":
    main()
