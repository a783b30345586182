"""The quorum as the metadata log and its snapshots describe it at each offset: the kraft.version and the voters."""
