"""The APIs of the cluster: versions, settings, the quorum, telemetry."""
