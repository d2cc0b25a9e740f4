"""The ``wiring`` step: which operators a problem runs, and what feeds what."""
