"""What the verbs do that is more than one call: reading lines, printing as it comes, drawing up reports."""
