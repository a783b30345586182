"""What the user asks of the data source: its options, and their parsing."""
