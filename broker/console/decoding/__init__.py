"""What users wrote is decoded, searched, masked and made readable here, all of it in a worker process with limits.

The modules import nothing of the node, so that the process starts fast; `work.py` is what it runs. The node sends bytes
of its logs and receives texts of bounded length.
"""
