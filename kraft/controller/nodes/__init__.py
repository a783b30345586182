"""The nodes of the cluster as the controller sees them: registered, alive, fenced, shutting down, gone."""
