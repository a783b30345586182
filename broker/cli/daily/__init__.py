"""The commands for daily work with a cluster. Each is a client of Kafka's protocol, for any cluster, over
`tables/client/`.

No node imports a module of this package. Each command is two modules: its arguments, which `--help` imports, and its
actions.
"""
