"""The APIs of topics and their replicas."""
