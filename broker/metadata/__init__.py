"""The metadata quorum on this node: the Raft shell, published images, the controller channel, registration."""
