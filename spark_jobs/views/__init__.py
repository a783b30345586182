"""The tables of `moldau.tables` in Spark: their columns and their readers."""
