"""The nodes of the cluster: their registration, heartbeats, fencing, controlled shutdown and removal."""
