"""Side-by-side timings, and longer runs whose small results are kept with the book: python -m benchmarks [NAME]."""
