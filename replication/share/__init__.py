"""Share groups (KIP-932): the records of a partition that are in flight, and the share sessions of members."""
