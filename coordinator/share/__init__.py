"""Share groups (KIP-932): members, epochs, targets, and the share partitions whose state the group has initialized."""
