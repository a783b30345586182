"""Where PySpark finds `spark.read.format("moldau")`: it looks for a DefaultSource in every module named pyspark_*.

That happens at the first look-up of any Python source, in every session: so this imports nothing heavy.
"""

from moldau.spark_jobs.data_source import MoldauDataSource as DefaultSource

__all__ = ["DefaultSource"]
