"""The judge: does a Triton program compile, and does it compute what its reference computes."""
