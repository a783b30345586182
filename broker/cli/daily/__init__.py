"""The commands for daily work with a cluster, of this broker or of Apache Kafka. Each is a client over
`tables/client/`. A node imports no module of this package. Each command has two modules: one declares the arguments,
which is all that `--help` imports; the other has the actions.
"""
