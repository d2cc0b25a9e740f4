"""A problem in KernelBench's form: loading it, trying it, drawing its inputs, varying them."""
