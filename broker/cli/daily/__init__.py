"""The commands of daily work with a cluster: a client of Kafka's protocol, for any cluster, over `tables/client/`.

No node imports a module of this package. Each command is two modules: what it takes, which `--help` imports, and what
it does.
"""
