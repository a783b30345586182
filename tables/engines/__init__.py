"""Topics in DuckDB, Polars, pandas and PyArrow's datasets: each engine's columns and predicates reach the scan."""
