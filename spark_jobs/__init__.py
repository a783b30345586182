"""Jobs and a data source for Spark that read Kafka's segments directly, without a broker."""
