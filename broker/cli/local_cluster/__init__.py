"""A cluster on one machine: the settings of its nodes, their processes, their output."""
