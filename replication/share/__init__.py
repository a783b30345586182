"""What share groups have in flight of a partition (KIP-932), and the share sessions of their members."""
