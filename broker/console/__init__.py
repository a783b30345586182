"""The console: pages about the cluster, as HTML for a browser and as JSON for a program."""
