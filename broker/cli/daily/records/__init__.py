"""Records: fetched and printed, read from files and written."""
