"""The sources of a backup's logs: log directories, or a running cluster."""
