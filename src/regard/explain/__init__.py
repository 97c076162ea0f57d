"""Pictures, pages and tables of what a model computed."""
