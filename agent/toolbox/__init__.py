"""The tools of the chat, typed and named once: for people at a prompt, for a model, and for other agents."""
