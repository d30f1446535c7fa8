"""The long runs whose small results are kept with the book, and what building takes: python -m benchmarks NAME."""
