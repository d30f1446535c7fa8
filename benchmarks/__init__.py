"""Longer runs whose small results are kept with the book, and side-by-side timings: python -m benchmarks NAME."""
