"""What one chapter of the book needs and the library does not: recipes, settings of long runs, data. One file each."""
