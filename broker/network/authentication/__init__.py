"""Authentication: the SASL exchange of a connection before its routes, the login to other nodes, certificates."""
