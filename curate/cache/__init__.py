"""What lies in a run's cache under its hash: unpacked archives and license texts."""
