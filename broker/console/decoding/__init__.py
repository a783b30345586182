"""Decodes, searches, masks and formats records that users wrote. All of it runs in a worker process with limits.

The modules import nothing of the node, so that the process starts fast. The process runs `work.py`. It gets bytes of
logs from the node, and returns texts of bounded length.
"""
