"""The tables of the data source, by their name in `table=`."""
