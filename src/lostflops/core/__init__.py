"""Plain data that every room uses: results and their pictures, units, errors, the version. It imports no other room."""
