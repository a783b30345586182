"""The lag exporter of a node. It measures what lag exporters measure from outside, for `/metrics` and for the lag
history of the last hour.
"""
