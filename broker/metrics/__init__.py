"""What an operator watches: metrics in Prometheus' text form, and whether the node lives and serves, over HTTP."""
