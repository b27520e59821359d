"""What a model's reply says: reasoning, text and calls of tools, found as its text arrives."""
