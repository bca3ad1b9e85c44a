"""What ranks are to each other: which do the same work, whose clock says what, and who met whom."""
