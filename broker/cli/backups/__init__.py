"""What `moldau backup` does: taking, listing and verifying backups."""
