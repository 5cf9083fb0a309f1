"""Files to texts that can be translated, and back."""
