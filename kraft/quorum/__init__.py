"""What the metadata log and its snapshots say of the quorum: its version and its voters, at each offset."""
