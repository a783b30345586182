"""This node's part in the metadata quorum: the log and its Raft machine, published images, requests to the active
controller, and the registration of the node.
"""
