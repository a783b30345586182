"""HTTP: the server of the metrics, the health probes, the console and the control interface."""
