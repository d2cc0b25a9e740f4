"""The report of a run: a page to read, figures, and ANALYSIS.md."""
