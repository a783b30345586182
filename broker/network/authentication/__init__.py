"""Authentication: the SASL exchange of a connection, this node's login to other nodes, and the keys and tokens of an
OAuth identity provider.
"""
