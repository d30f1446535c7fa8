"""Side-by-side timings, run by hand: python -m benchmarks."""
