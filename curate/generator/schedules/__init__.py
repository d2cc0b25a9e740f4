"""Schedules: ways through the elements of a kernel, each as a programmer would write it."""
