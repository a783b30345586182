"""The actions of `moldau user` and `moldau quota`."""
