"""Images and text, each with a bundled default that says so where the real data cannot be had."""
