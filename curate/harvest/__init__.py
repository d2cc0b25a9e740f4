"""Find modules in source files and make each one a task that runs alone."""
