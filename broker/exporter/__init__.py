"""The lag exporter of a node: what lag exporters measure from outside, for `/metrics` and for the last hour."""
