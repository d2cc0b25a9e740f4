"""`curate train`: supervised fine-tuning and reinforcement learning on the data."""
