"""The parts that carry out the effects of the Raft machine: on the disk, towards peers, and for the controller."""
