"""What is shown of a fit: live progress, where its time went, pictures."""
