"""Remote log metadata: the remote segments of a partition, as the records of `__remote_log_metadata` list them."""
