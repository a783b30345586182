"""Remote log metadata: which segments of a partition are in remote storage, as `__remote_log_metadata` says."""
