"""RocketMQ's C++ client, through the Python package `rocketmq`, which is built on it."""
