"""Topics in DuckDB, Polars, pandas and PyArrow's datasets. The columns and predicates of each engine's query reach the
scan of the topic."""
