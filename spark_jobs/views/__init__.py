"""The tables of `moldau.tables`, as Spark declares and reads them."""
