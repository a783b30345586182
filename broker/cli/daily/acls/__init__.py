"""The command `moldau acl`: lists, adds, removes and explains permissions."""
