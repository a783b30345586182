"""The sources from which a backup reads logs: the log directories of nodes, or a running cluster."""
