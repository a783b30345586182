"""A deterministic simulation in which this project tests its cluster: one seed determines the event loop, the network,
the disks and the clocks.
"""
