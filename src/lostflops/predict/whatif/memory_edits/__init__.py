"""What changes do to the blocks of a rank's memory: the edits that several of them share."""
