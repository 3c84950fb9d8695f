"""A small RocketMQ client that can also send what no stock client would."""
