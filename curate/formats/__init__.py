"""Views of finished rows for trainers: one config of the data set each."""
