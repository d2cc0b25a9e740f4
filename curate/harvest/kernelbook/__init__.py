"""KernelBook's rows as problems with programs."""
