"""A deterministic simulation in which this project tests its cluster: event loop, network, disks and clocks from one
seed.
"""
