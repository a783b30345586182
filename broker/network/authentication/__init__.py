"""Authentication: the SASL exchange of a connection, this node's login to other nodes, certificates."""
