"""The options of the data source, and their parsing."""
