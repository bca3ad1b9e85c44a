"""Plain data that every other package uses: results, pictures, units, errors. It imports no other package."""
