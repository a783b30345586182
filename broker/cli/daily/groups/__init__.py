"""The actions of `moldau group`: they list, describe, explain and change groups."""
