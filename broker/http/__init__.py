"""HTTP: the server behind the metrics, the health probes and the control interface."""
