"""Code for one chapter of the book only: training recipes, settings of long runs, data. One file per study."""
