"""The APIs about the cluster: versions, settings, the quorum and telemetry."""
