"""The project's own engine: PyTorch with transformers model classes behind SGLang's HTTP protocol."""

PORT_TAKEN = 98
"""Exit code of a server whose port somebody else holds (Linux's EADDRINUSE)."""
