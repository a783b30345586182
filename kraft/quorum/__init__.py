"""The quorum as the metadata log and its snapshots describe it at each offset: its version and its voters."""
