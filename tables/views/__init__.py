"""The tables, by their name in `table=`: their columns, and the readers that plan and read them."""
