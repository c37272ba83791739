"""The interactive session: a conversation with a model that has the tools, and commands that need no model."""
