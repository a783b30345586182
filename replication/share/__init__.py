"""The records of a partition that share groups have in flight (KIP-932), and the share sessions of the groups'
members."""
