"""The state of a partition on a broker: the in-sync set, the high watermark, fetch sessions."""
