"""The commands `moldau consume` and `moldau produce`: fetch and print records, and write records from files."""
