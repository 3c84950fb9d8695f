"""Segments: the files of one kind, data or index, as one address space.

segment       one file, read with `pread` and written with `pwrite`
segment_list  all segments of one kind
listing       which files of a folder are segments
patched_segments  a damaged log, read with zeros for what is missing, or with a patch
page_cache    reads that never wait for the disk
open_files    a bounded number of open descriptors
zero_ahead    zeros written ahead of the log's end, so that a flush changes data and no metadata
"""
