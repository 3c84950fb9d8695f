"""The formats that two programs share: one module each, bytes or JSON in, values out.

What belongs here: layouts, names, encoders, decoders and the checks that make them safe. Nothing
here opens a file or a socket, keeps a clock, or knows which program is running. `disk`, `status`
and `settings` use the standard library alone, because Spark executors import them; `frames` and
`requests` use msgspec.
"""
