"""A cluster on one machine: what each node is, the processes, what they say."""
