"""What the processes of the judge share: messages, problems in the making, comparing."""
