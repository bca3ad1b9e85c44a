"""What a measured run would take with more or fewer ranks."""
