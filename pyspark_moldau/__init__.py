"""The module in which PySpark finds `spark.read.format("moldau")`: it looks for a DefaultSource in every module named
pyspark_*.

PySpark imports this module at the first look-up of any Python data source, in every session. So it imports nothing
heavy.
"""

from moldau.spark_jobs.data_source import MoldauDataSource as DefaultSource

__all__ = ["DefaultSource"]
