"""Many runs as one: what each leaves behind, where it is kept, and what all of them show together."""
