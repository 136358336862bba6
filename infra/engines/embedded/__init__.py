"""The project's own engine: PyTorch with transformers model classes behind SGLang's HTTP protocol."""
