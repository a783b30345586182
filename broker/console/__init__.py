"""The console: pages about the cluster for a browser, which are JSON for a program."""
