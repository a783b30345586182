"""The deterministic world in which this project proves its cluster: loop, network, disks and clocks of one seed."""
