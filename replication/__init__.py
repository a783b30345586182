"""A partition as its replicas see it: the in-sync set, the high watermark, fetch sessions."""
