"""The folder of a data set: its splits as Parquet, its index, its provenance, its head."""
