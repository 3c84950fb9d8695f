"""A small RocketMQ client that can also send requests that no stock client would."""
